"""A decoded photo as the square that the model sees, and as a small JPEG; needs no torch."""

import base64
import io
import math
from typing import Literal, NamedTuple

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


class VisiblePart(NamedTuple):
    """Where a photo lies in a square that may reach beyond it, along one axis.

    Attributes:
        start: where the visible part of the photo begins, in pixels of the photo.
        end: where it ends.
        length: its pixels in the square.
        bar: pixels of the square before it.
        square_start: where the square begins, in pixels of the photo.
        square_extent: length of the square, in pixels of the photo.
    """

    start: float
    end: float
    length: int
    bar: int
    square_start: float
    square_extent: float


def visible_part(start: float, extent: float, photo_length: int, side: int) -> VisiblePart:
    """Return the part of a crop that lies in the photo, along one axis.

    Args:
        start: where the crop begins, in pixels of the photo.
        extent: length of the crop, in pixels of the photo.
        photo_length: width or height of the photo.
        side: of the square, in its pixels.
    """
    visible_start = max(start, 0.0)
    visible_end = min(start + extent, float(photo_length))
    if (visible_start, visible_end) == (start, start + extent):
        return VisiblePart(start, start + extent, side, 0, start, extent)
    visible_extent = visible_end - visible_start
    length = max(1, round(side * visible_extent / extent))
    bar = min(round(side * (visible_start - start) / extent), side - length)
    scale = visible_extent / length
    square_start = visible_start - bar * scale
    return VisiblePart(visible_start, visible_end, length, bar, square_start, side * scale)


def square(photo: DecodedPhoto, crop: Box, side: int) -> tuple[Image, Box]:
    """A part of a photo as a square of `side` pixels, with bars where it lies outside.

    Returns:
        The square and its exact box, in which bars take whole pixels of the square.
    """
    left, top, width, height = crop
    columns = visible_part(left, width, photo.size[0], side)
    rows = visible_part(top, height, photo.size[1], side)
    image, (x_scale, y_scale) = photo.image, photo.scales
    visible_box = (
        columns.start / x_scale,
        rows.start / y_scale,
        min(columns.end / x_scale, image.width),
        min(rows.end / y_scale, image.height),
    )
    pixels = image.resize(
        (columns.length, rows.length), Resampling.BILINEAR, visible_box, reducing_gap=3.0
    )
    if pixels.size != (side, side):
        padded = new("RGB", (side, side), GREY)
        padded.paste(pixels, (columns.bar, rows.bar))
        pixels = padded
    square_box = (
        columns.square_start,
        rows.square_start,
        columns.square_extent,
        rows.square_extent,
    )
    return pixels, square_box


def scaled_size(size: tuple[int, int], long_side: int) -> tuple[int, int]:
    """The width and height with `long_side` pixels on the longer side."""
    scale = long_side / max(size)
    width, height = (max(1, round(scale * side)) for side in size)
    return width, height


def scaled_down(photo: DecodedPhoto, long_side: int) -> DecodedPhoto:
    """The photo with at most `long_side` pixels on its longer side."""
    image, size = photo
    small_size = scaled_size(size, min(long_side, max(size)))
    # Not `thumbnail`, which would need a copy of the whole photo.
    return DecodedPhoto(image.resize(small_size, Resampling.LANCZOS, reducing_gap=3.0), size)


def jpeg(photo: Image, long_side: int) -> str:
    """The photo as a JPEG data URI without metadata, scaled down to `long_side` pixels."""
    rgb = photo if photo.mode == "RGB" else photo.convert("RGB")
    small = scaled_down(DecodedPhoto(rgb, rgb.size), long_side).image
    small.info.clear()  # comments and XMP, such as where it was taken, would be written too
    content = io.BytesIO()
    small.save(content, format="JPEG", quality=JPEG_QUALITY, optimize=True)
    return f"data:image/jpeg;base64,{base64.b64encode(content.getvalue()).decode()}"
