"""Turns photos into the images that the encoder sees, in training and inference alike."""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float16, UInt8
from PIL.Image import Image, fromarray
from torch import Tensor

from captioning.configurable import Configurable
from captioning.data.framing import CROP_SCALE, Box, Fit, crop_box, decoded_side, square
from captioning.data.images import (
    FORMATS,
    MAX_PIXELS,
    DecodedPhoto,
    Upload,
    read_reduced_photo,
    upright,
)
from captioning.errors import InputError, format_value, reading


class View(NamedTuple):
    """What the model sees of a photo."""

    pixels: UInt8[Tensor, "3 S S"] | Float16[Tensor, "P C"]  # or cached features
    crop: Box  # the part of the photo, with the bars beside it
    size: tuple[int, int]  # width and height of the photo in pixels

    @classmethod
    def of(cls, image: UInt8[np.ndarray, "S S 3"], crop: Box, size: tuple[int, int]) -> "View":
        """The view with the pixels of a square image."""
        return cls(torch.from_numpy(image).permute(2, 0, 1).contiguous(), crop, size)

    def mirrored(self) -> "View":
        """The view with left and right exchanged."""
        return self._replace(pixels=self.pixels.flip(-1))


@runtime_checkable
class BinaryFile(Protocol):
    """A readable file, or an upload of a web framework."""

    def read(self) -> Any:
        """All its bytes."""


PhotoSource = str | Path | Image | Upload | View
"""A photo as `Preprocessing` takes it: a path, an image in RGB, the bytes of a file, or a view."""

Photo = (
    PhotoSource
    | bytes
    | bytearray
    | memoryview
    | np.ndarray
    | Tensor
    | Mapping[str, Any]
    | BinaryFile
)
"""A path, a PIL image, the bytes of a file, a readable binary file, pixels, or a row of Hugging
Face's `datasets` (a mapping with ``image``, or with ``bytes`` and ``path``).

Pixels are an array (H, W, 3) or a tensor (3, H, W) of uint8; other arrays that Pillow can read as
images are accepted too, such as 16-bit greys (H, W)."""

_LOADING = Lock()
"""Held while an image or a file is read, since two threads may read the same one."""


def is_one_photo(photos: object) -> bool:
    """Whether the argument is one photo of any type, rather than several."""
    if isinstance(photos, np.ndarray | Tensor):  # not of paths
        return photos.ndim != 4 and getattr(photos.dtype, "kind", "") not in ("O", "S", "T", "U")
    is_bytes = isinstance(photos, bytes | bytearray | memoryview)
    return (
        is_bytes
        or isinstance(photos, PhotoSource | Mapping | os.PathLike)
        or hasattr(photos, "read")
    )


class Preprocessing(Configurable):
    """A photo, or a part of it, as a square image.

    Large JPEGs are decoded at reduced size, with at least twice the image's pixels along each side,
    so that the antialiased resizing decides the result.

    Args:
        size: S, side of the square in pixels.
        fit: crop: the largest square in the middle of the photo, at its own aspect ratio. Pad: the
            whole photo at its own aspect ratio, with grey bars along its long sides. Squeeze: the
            whole photo, its aspect ratio changed to 1.
    """

    limits: ClassVar = {"size": range(8, 1025)}

    def __init__(self, size: int = 224, fit: Fit = "crop") -> None:
        self.size = size
        self.fit = fit
        self.max_pixels = MAX_PIXELS  # no argument, since those are stored in checkpoints

    def photo_source(self, photo: Photo, name: str = "photo") -> PhotoSource:
        """Convert a photo of any type to one that this can be called with.

        Raises:
            InputError: pixels have another type or shape, or it is no photo.
        """
        content: Any = photo
        if isinstance(content, Mapping):
            content = content.get("image", content)
        if isinstance(content, Mapping):
            content = content.get("bytes") or content.get("path") or content
        if hasattr(content, "read"):
            content = _file_bytes(content, name)
        if isinstance(content, bytes | bytearray | memoryview):
            return Upload(name, bytes(content), self.max_pixels, FORMATS)
        if isinstance(content, np.ndarray | Tensor):
            content = _image_of_pixels(content)
        if isinstance(content, Image):
            try:
                with _LOADING:
                    return upright(content)
            except Exception as error:  # Pillow's plugins raise nearly anything on damaged files
                raise InputError(f"{name}: damaged or closed image ({error})") from None
        if isinstance(content, os.PathLike):
            return Path(content)
        if not isinstance(content, str | Upload | View):
            raise InputError(
                f"{format_value(photo)}: not a photo; give a path, an image, bytes or pixels"
            )
        return content

    def __call__(self, photo: str | Path | Upload | Image | DecodedPhoto) -> View:
        """The photo as the model sees it; safe to call from several threads.

        Raises:
            InputError: the photo cannot be read.
        """
        decoded = self.decode(photo)
        return self._view(decoded, crop_box(decoded.size, self.fit))

    def augmented(self, photo: str | Path | Image, generator: torch.Generator, flip: bool) -> View:
        """A random crop for training, mirrored half of the time if `flip` is true.

        Raises:
            InputError: the photo cannot be read.
        """
        right, down, mirror = torch.rand(3, generator=generator).tolist()
        decoded = self.decode(photo)
        left, top, full_width, full_height = crop_box(decoded.size, self.fit)
        width, height = full_width * CROP_SCALE, full_height * CROP_SCALE
        if self.fit == "crop":  # anywhere in the photo, not only in its middle
            left, top, (full_width, full_height) = 0.0, 0.0, decoded.size
        left, top = left + right * (full_width - width), top + down * (full_height - height)
        view = self._view(decoded, (left, top, width, height))
        return view.mirrored() if flip and mirror < 0.5 else view

    def decode(
        self, photo: str | Path | Upload | Image | DecodedPhoto, min_side: int = 0
    ) -> DecodedPhoto:
        """Decode a photo, a large JPEG at reduced size.

        Args:
            photo: the photo.
            min_side: the least width and height in pixels, if more than the model needs.

        Raises:
            InputError: the photo cannot be read.
        """
        if isinstance(photo, DecodedPhoto):
            return photo
        if isinstance(photo, Image):
            return DecodedPhoto(photo, photo.size)
        return read_reduced_photo(photo, max(decoded_side(self.size), min_side), self.max_pixels)

    def _view(self, photo: DecodedPhoto, crop: Box) -> View:
        """A part of a photo, with bars where it lies outside."""
        image, crop = square(photo, crop, self.size)
        return View.of(np.array(image), crop, photo.size)


class MirroredPreprocessing(Preprocessing):
    """Preprocessing for training that mirrors every photo."""

    def __call__(self, photo: str | Path | Upload | Image | DecodedPhoto) -> View:
        return super().__call__(photo).mirrored()


def _file_bytes(file: Any, name: str) -> bytes:
    """All bytes of an open file, or of a web framework's upload."""
    with _LOADING, reading(name):
        stream = getattr(file, "file", file)  # of uploads that are read asynchronously
        with suppress(Exception):  # a stream that cannot seek is read from where it is
            stream.seek(0)
        content = stream.read()
    if not isinstance(content, bytes):
        kind = type(content).__name__
        raise InputError(f"{name}: read() gives {kind}, not bytes; open in binary mode")
    return content


def _image_of_pixels(pixels: Any) -> Image:
    """The image of an array or a tensor of pixels."""
    try:
        if isinstance(pixels, Tensor):
            pixels = pixels.permute(1, 2, 0) if pixels.ndim == 3 else pixels
            pixels = pixels.detach().cpu().numpy()
        is_grey = pixels.ndim == 3 and pixels.shape[2] == 1
        return fromarray(pixels[:, :, 0] if is_grey else pixels)
    except (TypeError, ValueError):
        raise InputError(
            f"pixels of {pixels.dtype} and shape {pixels.shape}: give uint8, an array of "
            "shape (H, W, 3) or a tensor of shape (3, H, W)"
        ) from None
