"""Photos: any image file that Pillow reads becomes RGB, or one clear line says why not."""

import os
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader, BytesIO
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

from captioning.errors import InputError

FORMATS = ("bmp", "gif", "jfif", "jpe", "jpeg", "jpg", "pgm", "png", "ppm", "tif", "tiff", "webp")
IMAGE_SUFFIXES = frozenset(f".{name}" for name in FORMATS)

# EXIF's orientations: those that swap width and height, and those in which the end of the stored
# rows or columns (the larger x or y, after swapping) becomes the upright photo's left or top edge.
SIDEWAYS = (5, 6, 7, 8)
RIGHT_ON_LEFT = (2, 3, 6, 7)
BOTTOM_ON_TOP = (3, 4, 7, 8)


class PhotoSizeError(InputError):
    """A photo of more pixels than it is safe to decode."""


@dataclass(frozen=True)
class Upload:
    """A photo in memory that came from somebody who is not to be trusted.

    Attributes:
        name: what errors call it.
        data: the bytes of its file.
        max_pixels: of more it is refused by what its header says, before it is decoded.
    """

    name: str
    data: bytes
    max_pixels: int

    # No others: Pillow would run Ghostscript on PostScript.
    formats: ClassVar = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")

    def __str__(self) -> str:
        return self.name

    def open(self, mode: str) -> BytesIO:
        """The bytes as a file, as `Path.open` gives one."""
        assert mode == "rb"
        return BytesIO(self.data)


class ReducedImage(NamedTuple):
    """A photo that may have fewer pixels than its file, and where its pixels lie.

    The point (x, y) of the photo is the point `origin + (x, y) / reduction` of the image.

    Attributes:
        image: as `read_image` gives it, but for its size.
        size: width and height of the photo in pixels of the file, upright.
        reduction: pixels of the file per pixel of the image: 1, 2, 4 or 8.
        origin: left and top edge of the photo in pixels of the image. Outermost pixels reach
            beyond the photo where its size is no multiple of the reduction.
    """

    image: Image.Image
    size: tuple[int, int]
    reduction: float = 1.0
    origin: tuple[float, float] = (0.0, 0.0)


def read_image(path: str | Path | Upload) -> Image.Image:
    """The photo in 8-bit RGB, upright as its EXIF orientation says, transparency laid on white.

    16-bit and floating-point greys are scaled to 0..255; of an animation it is the first frame.
    Safe to call from several threads.

    Raises:
        InputError: the file is missing, a folder, empty, no image, or damaged.
        PhotoSizeError: it has more pixels than Pillow's limit against decompression bombs, or
            than an upload may have.
    """
    return _read(path, None).image


def read_reduced(path: str | Path | Upload, side: int) -> ReducedImage:
    """The photo as `read_image` gives it, but of a large JPEG fewer pixels in much less time.

    libjpeg-turbo, which Pillow's wheels bring along, decodes a JPEG at 1/2, 1/4 or 1/8 of its size
    by leaving high frequencies out. torchvision.io decodes as fast, but only whole photos.

    Args:
        path: the file, or an upload.
        side: neither width nor height become smaller than this by the reduction.

    Raises:
        InputError: as `read_image`.
        PhotoSizeError: as `read_image`.
    """
    return _read(path, side)


def _read(path: str | Path | Upload, side: int | None) -> ReducedImage:
    path = path if isinstance(path, Upload) else Path(path)
    try:
        with path.open("rb") as file:
            if file.seek(0, os.SEEK_END) == 0:
                raise InputError(f"{path}: empty file (0 bytes); copy or download the photo again")
            file.seek(0)
            with _quiet:
                return _decoded(_opened(file, path), side)
    except InputError:
        raise
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"{path}: no such file; check the path") from None
    except IsADirectoryError:
        raise InputError(f"{path}: a folder, not a photo; give the path of an image file") from None
    except PermissionError:
        raise InputError(f"{path}: may not be read; check the file's permissions") from None
    except UnidentifiedImageError:
        raise InputError(
            f"{path}: not an image that can be read; convert it to JPEG or PNG"
        ) from None
    except Image.DecompressionBombError:
        raise PhotoSizeError(f"{path}: too many pixels to be safe; scale the photo down") from None
    except Exception as error:  # on damaged files Pillow's plugins raise nearly anything
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(
            f"{path}: damaged or cut short ({reason}); copy or download the photo again"
        ) from None


def _opened(file: BufferedReader | BytesIO, path: Path | Upload) -> Image.Image:
    """The image, of which only the header has been read."""
    if not isinstance(path, Upload):
        return Image.open(file)
    image = Image.open(file, formats=path.formats)
    width, height = image.size
    if width * height > path.max_pixels:
        raise PhotoSizeError(
            f"{path}: {width} x {height} pixels are more than the {path.max_pixels / 1e6:g} "
            "million that are read here; scale the photo down"
        )
    return image


def _decoded(image: Image.Image, side: int | None) -> ReducedImage:
    width, height = image.size
    drafted = None if side is None else image.draft(None, (side, side))
    reduction = width / drafted[1][2] if drafted else 1.0  # exact: the box is not rounded
    image.load()
    try:
        orientation = image.getexif().get(ExifTags.Base.Orientation, 1)
        image = ImageOps.exif_transpose(image)
    except Exception:  # the pixels are whole: damaged EXIF data only loses the orientation
        orientation = 1
        image.info.pop("exif", None)
    # As stored, the last pixels of a row and of a column are those that reach beyond the photo.
    beyond = (-width % reduction / reduction, -height % reduction / reduction)
    if orientation in SIDEWAYS:
        width, height = height, width
        beyond = beyond[::-1]
    left = beyond[0] if orientation in RIGHT_ON_LEFT else 0.0
    top = beyond[1] if orientation in BOTTOM_ON_TOP else 0.0
    return ReducedImage(_rgb(image), (width, height), reduction, (left, top))


def _rgb(image: Image.Image) -> Image.Image:
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        return _grey(image).convert("RGB")
    if image.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in image.info:
        rgba = image.convert("RGBA")
        white = Image.new("RGBA", rgba.size, "white")
        return Image.alpha_composite(white, rgba).convert("RGB")
    return image.convert("RGB")


def _grey(image: Image.Image) -> Image.Image:
    """An image of one wide channel as 8 bits; Pillow's own conversion clips all above 255."""
    values = np.nan_to_num(np.asarray(image, dtype=np.float32), posinf=0.0, neginf=0.0)
    # Integers come from 16-bit files; floats have no agreed white, so the largest value tells it.
    whites = (1.0, 255.0, 65535.0) if image.mode == "F" else (65535.0,)
    largest = float(values.max())
    white = next((white for white in whites if white >= largest), largest)
    return Image.fromarray(np.rint(values.clip(0, white) * (255 / white)).astype(np.uint8))


class _Quiet:
    """Silences warnings while any thread is inside.

    `warnings.catch_warnings` alone swaps a global list: two threads that leave in the order in
    which they entered would restore the wrong one, and warnings would stay off for ever.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._silence = _silence()
                self._silence.__enter__()
            self._inside += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._silence.__exit__(None, None, None)


@contextmanager
def _silence() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


_quiet = _Quiet()
