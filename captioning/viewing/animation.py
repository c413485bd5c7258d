"""An animated GIF of a caption: its words one after another, with the map of each."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from captioning.captioner.caption import Caption
from captioning.data.tokenizers import pieces
from captioning.files import written_whole
from captioning.viewing.overlay import DOTS_PER_INCH, WORD_POINTS, drawable, pictures
from captioning.viewing.viewer import Photo

WORD_TIME, LAST_TIME = 700, 2000
"""Milliseconds for which a word, and the last one, is shown."""

LETTERING = 60
"""Pixels of height below the photo for the words."""

ROOM = 0.95
"""The widest line as a share of the photo's width."""


def save(photo: Photo, caption: Caption, path: str | Path, map_name: str | None = None) -> None:
    """Write the frames as an animated GIF that repeats, atomically.

    Raises:
        InputError: as `frames`, or the file cannot be written.
    """
    first, *others = frames(photo, caption, map_name)
    with written_whole(path) as temporary:
        first.save(
            temporary,
            format="GIF",
            save_all=True,
            append_images=others,
            duration=[*[WORD_TIME] * len(others), LAST_TIME],
            loop=0,
        )


def frames(photo: Photo, caption: Caption, map_name: str | None = None) -> list[Image.Image]:
    """For each word the photo with the word's map, above the caption up to this word.

    A caption without words has one frame, the photo.

    Args:
        photo: the photo of the caption, or its path.
        caption: the caption.
        map_name: which map; defaults to the caption's first shown map.

    Raises:
        InputError: the photo cannot be read or is not the caption's, or there is no such map.
    """
    plain, *of_words = pictures(photo, caption, map_name)
    words, families = drawable(pieces(caption.words, caption.tokenizer))
    return [
        _lettered(picture, words, count, families)
        for count, picture in enumerate(of_words or [plain], 1)
    ]


def _lettered(
    picture: UInt8[np.ndarray, "height width 3"],
    words: Sequence[str],
    count: int,
    families: tuple[str, ...],
) -> Image.Image:
    """The picture above the first words, where they stand in the whole line."""
    height, width, _ = picture.shape
    figure = Figure((width / DOTS_PER_INCH, (height + LETTERING) / DOTS_PER_INCH), DOTS_PER_INCH)
    canvas = FigureCanvasAgg(figure)
    figure.figimage(picture, 0, LETTERING)
    line = figure.text(
        0,
        LETTERING / 2 / (height + LETTERING),
        "".join(words),
        fontsize=WORD_POINTS,
        fontfamily=families,
        verticalalignment="center",
        parse_math=False,
    )
    length = line.get_window_extent().width
    scale = min(1.0, ROOM * width / max(length, 1))
    line.set(fontsize=WORD_POINTS * scale, x=(1 - scale * length / width) / 2)
    line.set_text("".join(words[:count]))
    canvas.draw()
    return Image.fromarray(np.asarray(canvas.buffer_rgba())[..., :3].copy())
