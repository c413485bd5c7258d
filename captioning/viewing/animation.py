"""An animated GIF of a caption: its words one after another, with the map of each."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float, UInt8
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from captioning.files import written_whole
from captioning.viewing.overlay import DOTS_PER_INCH, WORD_POINTS, Crop, drawable, pictures

WORD_TIME, LAST_TIME = 700, 2000
"""Milliseconds for which a word, and the last one, is shown."""

LETTERING = 60
"""Pixels of height below the photo for the words."""

ROOM = 0.95
"""The widest line as a share of the photo's width."""


def save(
    photo: Image.Image,
    pieces: Sequence[str],
    maps: Float[np.ndarray, "T rows columns"],
    crop: Crop,
    path: str | Path,
) -> None:
    """Write the frames as an animated GIF that repeats, atomically.

    Raises:
        InputError: the file cannot be written.
    """
    first, *others = frames(photo, pieces, maps, crop)
    with written_whole(path) as temporary:
        first.save(
            temporary,
            format="GIF",
            save_all=True,
            append_images=others,
            duration=[*[WORD_TIME] * len(others), LAST_TIME],
            loop=0,
        )


def frames(
    photo: Image.Image,
    pieces: Sequence[str],
    maps: Float[np.ndarray, "T rows columns"],
    crop: Crop,
) -> list[Image.Image]:
    """For each word the photo with the word's map, above the caption up to this word.

    A caption without words has one frame, the photo.

    Args:
        photo: the photo, upright.
        pieces: the words, each behind the space that belongs before it.
        maps: of the words.
        crop: the part of the photo that the maps cover.
    """
    plain, *of_words = pictures(photo, maps, crop)
    shown, families = drawable(pieces)
    return [
        _lettered(picture, shown, count, families)
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
