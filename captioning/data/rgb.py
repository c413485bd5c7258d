"""Converts decoded photos of any mode to 8-bit RGB, in strips where that saves memory."""

from collections.abc import Callable, Iterator

import numpy as np
from PIL import Image

STRIP = 1 << 20
"""Pixels converted at a time by conversions that need several copies."""


def rgb(image: Image.Image, strip: int = STRIP) -> Image.Image:
    """A copy in RGB, transparency laid on white, and wide greys scaled to 0..255.

    Metadata is dropped. The conversion needs little memory besides the photo and its copy.

    Args:
        image: the decoded photo.
        strip: pixels converted at a time; the result does not depend on it.
    """
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        white = _white(image, strip)
        return _by_strips(image, strip, lambda part: _grey(part, white).convert("RGB"))
    if image.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in image.info:
        return _by_strips(image, strip, _on_white)
    copy = image.convert("RGB")
    copy.info.clear()
    return copy


def _by_strips(
    image: Image.Image, strip: int, convert: Callable[[Image.Image], Image.Image]
) -> Image.Image:
    copy = Image.new("RGB", image.size)
    for top, part in _strips(image, strip):
        copy.paste(convert(part), (0, top))
    return copy


def _strips(image: Image.Image, strip: int) -> Iterator[tuple[int, Image.Image]]:
    """The upper edge of each strip, and the strip."""
    width, height = image.size
    rows = max(1, strip // width)
    for top in range(0, height, rows):
        yield top, image.crop((0, top, width, min(top + rows, height)))


def _on_white(image: Image.Image) -> Image.Image:
    rgba = image.convert("RGBA")
    white = Image.new("RGBA", rgba.size, "white")
    return Image.alpha_composite(white, rgba).convert("RGB")


def _values(image: Image.Image) -> np.ndarray:
    return np.nan_to_num(np.asarray(image, dtype=np.float32), posinf=0.0, neginf=0.0)


def _white(image: Image.Image, strip: int) -> float:
    """The value of white in an image of one wide channel."""
    if image.mode.startswith("I;16"):
        return 65535.0
    # Integers come from 16-bit files; floats have no agreed white, so it follows from the maximum.
    whites = (1.0, 255.0, 65535.0) if image.mode == "F" else (65535.0,)
    largest = max(float(_values(part).max()) for _, part in _strips(image, strip))
    return next((white for white in whites if white >= largest), largest)


def _grey(image: Image.Image, white: float) -> Image.Image:
    """An image of one wide channel as 8 bits; Pillow's own conversion clips values above 255."""
    values = _values(image)
    return Image.fromarray(np.rint(values.clip(0, white) * (255 / white)).astype(np.uint8))
