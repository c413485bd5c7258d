"""How a photo becomes the image that the encoder sees, in training and afterwards."""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float16, UInt8
from PIL.Image import Image, fromarray
from torch import Tensor

from captioning.configurable import Configurable
from captioning.data.framing import MARGIN, Fit, Place, decoded_side, seen_place, square
from captioning.data.images import FORMATS, MAX_PIXELS, DecodedPhoto, Upload, read_photo, upright
from captioning.errors import InputError, reading, shown


class View(NamedTuple):
    """What the model sees of a photo."""

    pixels: UInt8[Tensor, "3 S S"] | Float16[Tensor, "P C"]  # or cached features
    crop: Place  # the part of the photo, with the bars beside it
    size: tuple[int, int]  # width and height of the photo in pixels

    @classmethod
    def of(cls, square: UInt8[np.ndarray, "S S 3"], crop: Place, size: tuple[int, int]) -> "View":
        """The view with the pixels of a square."""
        return cls(torch.from_numpy(square).permute(2, 0, 1).contiguous(), crop, size)

    def mirrored(self) -> "View":
        """With left and right exchanged."""
        return self._replace(pixels=self.pixels.flip(-1))


@runtime_checkable
class BinaryFile(Protocol):
    """A readable file, or an upload of a web framework."""

    def read(self) -> Any:
        """All its bytes."""


Readable = str | Path | Image | Upload | View
Photo = (
    Readable | bytes | bytearray | memoryview | np.ndarray | Tensor | Mapping[str, Any] | BinaryFile
)
"""A path, a PIL image, the bytes of a file, a readable binary file, pixels, or a row of Hugging
Face's `datasets` (a mapping with ``image``, or with ``bytes`` and ``path``).

Pixels are an array (H, W, 3) or a tensor (3, H, W) of uint8; what Pillow makes an image of is read
as that image, such as 16-bit greys (H, W)."""

_LOADING = Lock()
"""Held while an image or a file is read, since the same one may come twice."""


def is_one_photo(photos: object) -> bool:
    """Whether it is one photo, rather than several, of whatever type."""
    if isinstance(photos, np.ndarray | Tensor):  # not of paths
        return photos.ndim != 4 and getattr(photos.dtype, "kind", "") not in ("O", "S", "T", "U")
    is_bytes = isinstance(photos, bytes | bytearray | memoryview)
    return (
        is_bytes or isinstance(photos, Readable | Mapping | os.PathLike) or hasattr(photos, "read")
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

    def __init__(self, size: int = 224, fit: Fit = "crop") -> None:
        self.size = size
        self.fit = fit
        self.max_pixels = MAX_PIXELS  # no argument, since those are stored in checkpoints

    def place(self, size: tuple[int, int]) -> Place:
        """The part that is seen of a photo of this width and height."""
        return seen_place(size, self.fit)

    def readable(self, photo: Photo, name: str = "photo") -> Readable:
        """The photo as this takes it: an image in RGB, a path, or the bytes of a file with a name.

        Raises:
            InputError: pixels have another type or shape, or it is no photo.
        """
        given: Any = photo
        if isinstance(given, Mapping):
            given = given.get("image", given)
        if isinstance(given, Mapping):
            given = next(filter(None, map(given.get, ("bytes", "path"))), given)
        if hasattr(given, "read"):
            with _LOADING, reading(name):
                file = getattr(given, "file", given)  # of uploads that are read asynchronously
                with suppress(Exception):  # a stream is read from where it is
                    file.seek(0)
                given = file.read()
            if not isinstance(given, bytes):
                kind = type(given).__name__
                raise InputError(f"{name}: read() gives {kind}, not bytes; open in binary mode")
        if isinstance(given, bytes | bytearray | memoryview):
            return Upload(name, bytes(given), self.max_pixels, FORMATS)
        if isinstance(given, np.ndarray | Tensor):
            try:
                if isinstance(given, Tensor):
                    given = given.permute(1, 2, 0) if given.ndim == 3 else given
                    given = given.detach().cpu().numpy()
                is_grey = given.ndim == 3 and given.shape[2] == 1
                given = fromarray(given[:, :, 0] if is_grey else given)
            except (TypeError, ValueError):
                raise InputError(
                    f"pixels of {given.dtype} and shape {given.shape}: give uint8, an array of "
                    "shape (H, W, 3) or a tensor of shape (3, H, W)"
                ) from None
        if isinstance(given, Image):
            try:
                with _LOADING:
                    return upright(given)
            except Exception as error:  # Pillow's plugins raise nearly anything on damaged files
                raise InputError(f"{name}: damaged or closed image ({error})") from None
        if isinstance(given, os.PathLike):
            return Path(given)
        if not isinstance(given, str | Upload | View):
            raise InputError(f"{shown(photo)}: not a photo; give a path, an image, bytes or pixels")
        return given

    def __call__(self, photo: str | Path | Upload | Image) -> View:
        """The photo as the model sees it; safe to call from several threads.

        Raises:
            InputError: the photo cannot be read.
        """
        decoded = self._decoded(photo)
        return self._view(decoded, self.place(decoded.size))

    def augmented(self, photo: str | Path | Image, generator: torch.Generator, flip: bool) -> View:
        """A random crop, with `flip` mirrored half of the time; for training.

        Raises:
            InputError: the photo cannot be read.
        """
        right, down, mirror = torch.rand(3, generator=generator).tolist()
        decoded = self._decoded(photo)
        left, top, across, high = self.place(decoded.size)
        width, height = across * MARGIN, high * MARGIN
        if self.fit == "crop":  # anywhere in the photo, not only in its middle
            left, top, (across, high) = 0.0, 0.0, decoded.size
        left, top = left + right * (across - width), top + down * (high - height)
        view = self._view(decoded, (left, top, width, height))
        return view.mirrored() if flip and mirror < 0.5 else view

    def _decoded(self, photo: str | Path | Upload | Image) -> DecodedPhoto:
        if isinstance(photo, Image):
            return DecodedPhoto(photo, photo.size)
        return read_photo(photo, decoded_side(self.size), self.max_pixels)

    def _view(self, photo: DecodedPhoto, place: Place) -> View:
        """A part of a photo, with bars where it lies outside."""
        seen, place = square(photo, place, self.size)
        return View.of(np.array(seen), place, photo.size)


class MirroredPreprocessing(Preprocessing):
    """The same, mirrored left to right; for training."""

    def __call__(self, photo: str | Path | Upload | Image) -> View:
        return super().__call__(photo).mirrored()
