"""A decoded photo as the square that the model sees, and as a small JPEG; needs no torch."""

import base64
import io
import math
from typing import Literal

from PIL.Image import Image, Resampling, new

from captioning.data.images import DecodedPhoto

CROP_SCALE = 7 / 8
"""Sides of a random crop, as a fraction of the sides of `crop_box`."""

GREY = (128, 128, 128)  # of the bars beside a padded photo
JPEG_QUALITY = 85

Fit = Literal["crop", "pad", "squeeze"]
"""How a photo becomes a square: cut to its middle, padded with bars, or stretched."""

Box = tuple[float, float, float, float]
"""Left, top, width and height of a part of a photo in its pixels; bars lie outside the photo."""


def decoded_side(side: int) -> int:
    """The minimum side of a decoded photo, for a square of `side` pixels."""
    return math.ceil(2 * side / CROP_SCALE)


def crop_box(size: tuple[int, int], fit: Fit) -> Box:
    """The part of a photo of this width and height that the model sees."""
    width, height = size
    if fit == "squeeze":
        return 0.0, 0.0, float(width), float(height)
    side = float(min(size) if fit == "crop" else max(size))
    return (width - side) / 2, (height - side) / 2, side, side


def square(photo: DecodedPhoto, crop: Box, side: int) -> tuple[Image, Box]:
    """A part of a photo as a square of `side` pixels, with bars where it lies outside.

    Returns:
        The square and its exact box, in which bars take whole pixels of the square.
    """
    image, size = photo
    axes = []  # the columns, then the rows
    for start, extent, length in zip(crop[:2], crop[2:], size, strict=True):
        first, last = max(start, 0.0), min(start + extent, float(length))
        visible, bar, covered = side, 0, (start, extent)
        if (first, last) != (start, start + extent):
            visible = max(1, round(side * (last - first) / extent))
            bar = min(round(side * (first - start) / extent), side - visible)
            scale = (last - first) / visible
            covered = first - bar * scale, side * scale
        axes.append((first, last, visible, bar, covered))
    (x0, x1, across, x_bar, (left, width)), (y0, y1, down, y_bar, (top, height)) = axes
    # The last pixels of a reduced photo may reach beyond it, so its size is not exact.
    reduction = round(size[0] / image.width)
    box = x0 / reduction, y0 / reduction, x1 / reduction, y1 / reduction
    resized = image.resize((across, down), Resampling.BILINEAR, box, reducing_gap=3.0)
    if (across, down) != (side, side):
        padded = new("RGB", (side, side), GREY)
        padded.paste(resized, (x_bar, y_bar))
        resized = padded
    return resized, (left, top, width, height)


def decoded_photo(photo: Image | DecodedPhoto) -> DecodedPhoto:
    """The photo, which has its full size if it is an image."""
    return photo if isinstance(photo, DecodedPhoto) else DecodedPhoto(photo, photo.size)


def scaled_down(photo: DecodedPhoto, long_side: int) -> DecodedPhoto:
    """The photo with at most `long_side` pixels on its longer side."""
    image, size = photo
    scale = min(1.0, long_side / max(size))
    width, height = (max(1, round(scale * side)) for side in size)
    # Not `thumbnail`, which would need a copy of the whole photo.
    return DecodedPhoto(image.resize((width, height), Resampling.LANCZOS, reducing_gap=3.0), size)


def jpeg(photo: Image, long_side: int) -> str:
    """The photo as a JPEG data URI without metadata, scaled down to `long_side` pixels."""
    rgb = photo if photo.mode == "RGB" else photo.convert("RGB")
    small = scaled_down(DecodedPhoto(rgb, rgb.size), long_side).image
    small.info.clear()  # comments and XMP, such as where it was taken, would be written too
    content = io.BytesIO()
    small.save(content, format="JPEG", quality=JPEG_QUALITY, optimize=True)
    return f"data:image/jpeg;base64,{base64.b64encode(content.getvalue()).decode()}"
