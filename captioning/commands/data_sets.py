"""`captioning check` and `captioning shapes`: data sets before training, and one that is drawn."""

import os
from pathlib import Path

from captioning.commands.options import CaptionColumn, Images, MaxMegapixels


def check_data(
    data: Path,
    /,
    *,
    images: Images = None,
    caption_column: CaptionColumn = None,
    max_megapixels: MaxMegapixels = 100.0,
) -> int:
    """Look for faults in a data set before training.

    Every photo and caption is read. The exit code is 1 if there are faults.

    Args:
        data: The data set, in any layout that is known.
    """
    from captioning.data import folder_check
    from captioning.data.images import pixels_of
    from captioning.data.readers import reader_for

    reader = reader_for(data, True, images, caption_column)
    found = folder_check.check(reader, max_pixels=pixels_of(max_megapixels))
    print(found)
    return 0 if found.ok else 1


def shapes(
    directory: Path,
    /,
    *,
    train: int = 6000,
    val: int = 500,
    test: int = 500,
    pixels: int = 128,
    hard: bool = False,
    seed: int = 0,
    processes: int | None = None,
) -> None:
    """Draw the data set of simple scenes.

    Args:
        directory: Where to draw it.
        train: Scenes to train on.
        val: Scenes to validate on.
        test: Scenes held out.
        pixels: Side of a picture.
        hard: Draw three to five textured objects, some partly hidden, among clutter.
        seed: Of what is drawn.
        processes: Drawing processes; by default one for each core and each 1,000 scenes.
    """
    from captioning.shapes import write_shapes
    from captioning.terminal import printable

    worthwhile = max(1, min(os.cpu_count() or 1, (train + val + test) // 1000))
    write_shapes(
        directory,
        train=train,
        val=val,
        test=test,
        pixels=pixels,
        seed=seed,
        processes=processes or worthwhile,
        hard=hard,
    )
    print(printable(directory))
