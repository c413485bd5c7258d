"""How a photo becomes the image that the encoder sees, in training and afterwards."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import UInt8
from PIL.Image import Image, Resampling, fromarray
from torch import Tensor

from captioning.configurable import Configurable
from captioning.data.images import MAX_PIXELS, Upload, read_image, read_photo
from captioning.errors import InputError
from captioning.numbers import ImageSize, shown

MARGIN = 7 / 8
"""Range of the side of a random crop, as a fraction of the photo's short side (augmentation)."""

Place = Callable[[tuple[int, int]], tuple[float, float, float, float]]
"""Left, top, width and height of a square, in pixels of a photo of this width and height."""


class View(NamedTuple):
    """What the model sees of a photo.

    Attributes:
        pixels: the image at the encoder's size.
        crop: the part of the photo: left, top, width and height in its pixels.
        size: width and height of the photo in pixels.
        is_mirrored: whether left and right are exchanged.
    """

    pixels: UInt8[Tensor, "3 S S"]
    crop: tuple[float, float, float, float]
    size: tuple[int, int]
    is_mirrored: bool = False

    def mirrored(self) -> "View":
        """The view with left and right exchanged."""
        return self._replace(pixels=self.pixels.flip(-1), is_mirrored=not self.is_mirrored)


Readable = str | Path | Image | Upload | View
Photo = Readable | bytes | np.ndarray | Tensor
"""A path, a PIL image, the bytes of a file, or 8-bit RGB pixels: an array (H, W, 3) or a tensor
(3, H, W)."""


def readable(photo: Photo, max_pixels: int = MAX_PIXELS) -> Readable:
    """The photo as `Preprocessing` takes it: pixels and the bytes of a file become images.

    Raises:
        InputError: pixels have another type or shape, bytes are no photo, or it is something else.
    """
    if isinstance(photo, bytes):
        return read_image(Upload("photo", photo, max_pixels))
    if isinstance(photo, Tensor):
        photo = (photo.permute(1, 2, 0) if photo.ndim == 3 else photo).cpu().numpy()
    if isinstance(photo, np.ndarray):
        if photo.dtype != np.uint8 or photo.ndim != 3 or photo.shape[2] != 3:
            raise InputError(
                f"pixels of {photo.dtype} and shape {photo.shape}: give uint8, an array of "
                "shape (H, W, 3) or a tensor of shape (3, H, W)"
            )
        return fromarray(photo)
    if isinstance(photo, Image):
        return photo if photo.mode == "RGB" else photo.convert("RGB")
    if not isinstance(photo, Readable):
        raise InputError(f"{shown(photo)}: not a photo; give a path, an image or pixels")
    return photo


def middle(size: tuple[int, int]) -> tuple[float, float, float, float]:
    """Left, top, width and height of the largest square in the middle of a photo of this size."""
    width, height = size
    side = float(min(width, height))
    return (width - side) / 2, (height - side) / 2, side, side


class Preprocessing(Configurable):
    """A square crop of a photo at its own aspect ratio.

    Large JPEGs are decoded at reduced size, but always with at least twice the image's pixels along
    each side, so that the antialiased resizing decides the result.

    Args:
        size: S, side of the square in pixels.
    """

    def __init__(self, size: ImageSize = 224) -> None:
        self.size = size
        self.max_pixels = MAX_PIXELS  # no argument, since those are stored in checkpoints

    def __call__(self, photo: str | Path | Upload | Image) -> View:
        """The largest square in the middle of the photo.

        Args:
            photo: a path, an upload, or an image as `read_image` gives it.

        Raises:
            InputError: the photo cannot be read.
        """
        return self._view(photo, middle)

    def _view(self, photo: str | Path | Upload | Image, place: Place) -> View:
        if isinstance(photo, Image):
            image, size = photo, photo.size
        else:
            image, size = read_photo(photo, math.ceil(2 * self.size / MARGIN), self.max_pixels)
        left, top, side, _ = crop = place(size)
        # The last pixels of a reduced photo may reach beyond it, so its size is not exact.
        r = round(size[0] / image.width)
        small = image.resize(
            (self.size, self.size),
            Resampling.BILINEAR,
            box=(left / r, top / r, (left + side) / r, (top + side) / r),
            reducing_gap=3.0,
        )
        pixels = torch.from_numpy(np.array(small)).permute(2, 0, 1).contiguous()
        return View(pixels, crop, size)

    def augmented(self, photo: str | Path | Image, generator: torch.Generator, flip: bool) -> View:
        """A random crop, with `flip` mirrored half of the time; for training.

        Raises:
            InputError: the photo cannot be read.
        """
        right, down, mirror = torch.rand(3, generator=generator).tolist()

        def anywhere(size: tuple[int, int]) -> tuple[float, float, float, float]:
            side = min(size) * MARGIN
            return right * (size[0] - side), down * (size[1] - side), side, side

        view = self._view(photo, anywhere)
        return view.mirrored() if flip and mirror < 0.5 else view


class MirroredPreprocessing(Preprocessing):
    """The same square, mirrored left to right; for training."""

    def __call__(self, photo: str | Path | Upload | Image) -> View:
        """As `Preprocessing`, with left and right exchanged."""
        return super().__call__(photo).mirrored()
