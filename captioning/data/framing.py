"""A decoded photo as the square that the model sees, and as a small JPEG; needs no torch."""

import base64
import io
import math
from typing import Literal

from PIL.Image import Image, Resampling, new

from captioning.data.images import DecodedPhoto

MARGIN = 7 / 8
"""Sides of a random crop as a fraction of those of the part that is otherwise seen."""

GREY = (128, 128, 128)  # of the bars beside a padded photo
QUALITY = 85  # of JPEG

Fit = Literal["crop", "pad", "squeeze"]
"""How a photo becomes a square: its middle alone, with bars beside it, or with another shape."""

Place = tuple[float, float, float, float]
"""Left, top, width and height of a part of a photo in its pixels; bars lie outside the photo."""


def decoded_side(side: int) -> int:
    """The least pixels along each side of a decoded photo, for a square of `side` pixels."""
    return math.ceil(2 * side / MARGIN)


def seen_place(size: tuple[int, int], fit: Fit) -> Place:
    """The part that is seen of a photo of this width and height."""
    width, height = size
    if fit == "squeeze":
        return 0.0, 0.0, float(width), float(height)
    side = float(min(size) if fit == "crop" else max(size))
    return (width - side) / 2, (height - side) / 2, side, side


def square(photo: DecodedPhoto, place: Place, side: int) -> tuple[Image, Place]:
    """A part of a photo as a square of `side` pixels, with bars where it lies outside.

    Returns:
        the square, and its exact place: bars take whole pixels of it.
    """
    image, size = photo
    along = []  # the columns, then the rows
    for start, extent, length in zip(place[:2], place[2:], size, strict=True):
        first, last = max(start, 0.0), min(start + extent, float(length))
        shown, bar, covered = side, 0, (start, extent)
        if (first, last) != (start, start + extent):
            shown = max(1, round(side * (last - first) / extent))
            bar = min(round(side * (first - start) / extent), side - shown)
            scale = (last - first) / shown
            covered = first - bar * scale, side * scale
        along.append((first, last, shown, bar, covered))
    (x0, x1, across, x_bar, (left, width)), (y0, y1, down, y_bar, (top, height)) = along
    # The last pixels of a reduced photo may reach beyond it, so its size is not exact.
    r = round(size[0] / image.width)
    box = x0 / r, y0 / r, x1 / r, y1 / r
    seen = image.resize((across, down), Resampling.BILINEAR, box, reducing_gap=3.0)
    if (across, down) != (side, side):
        small, seen = seen, new("RGB", (side, side), GREY)
        seen.paste(small, (x_bar, y_bar))
    return seen, (left, top, width, height)


def jpeg(photo: Image, long_side: int) -> str:
    """The photo as a JPEG data URI without metadata, scaled down to `long_side` pixels."""
    small = photo if photo.mode == "RGB" else photo.convert("RGB")
    scale = min(1.0, long_side / max(photo.size))
    size = (max(1, round(scale * photo.width)), max(1, round(scale * photo.height)))
    # Not `thumbnail`, which would need a copy of the whole photo.
    small = small.resize(size, Resampling.LANCZOS, reducing_gap=3.0)
    small.info.clear()  # comments and XMP, such as where it was taken, would be written too
    content = io.BytesIO()
    small.save(content, format="JPEG", quality=QUALITY, optimize=True)
    return f"data:image/jpeg;base64,{base64.b64encode(content.getvalue()).decode()}"
