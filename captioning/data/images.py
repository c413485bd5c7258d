"""Reads photos of any format that Pillow supports as RGB, with one-line errors."""

import ctypes
import os
import stat
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import ClassVar, NamedTuple

from PIL import ExifTags, Image, UnidentifiedImageError

from captioning.data.megapixels import MAX_PIXELS
from captioning.data.photo_limits import (
    MAX_FILE,
    MEMORY,
    MeteredFile,
    PhotoSizeError,
    check_header,
    check_pixels,
    decoding_bytes,
)
from captioning.data.rgb import rgb
from captioning.errors import InputError, as_input_error

FORMATS = ("bmp", "gif", "jfif", "jpe", "jpeg", "jpg", "pgm", "png", "ppm", "tif", "tiff", "webp")
IMAGE_SUFFIXES = frozenset(f".{name}" for name in FORMATS)

BLOCK = 2**26
"""Bytes of the blocks in which Pillow allocates pixels.

glibc returns blocks above 32 MB to the system as soon as they are free. With Pillow's default of
16 MB, every thread would keep as much memory as its largest photo took.
"""

if "PILLOW_BLOCK_SIZE" not in os.environ:
    Image.core.set_block_size(BLOCK)

# libtiff prints errors about damaged files, without their names, besides the error that Pillow
# raises. This silences it, unless a build of Pillow bundles it in another way.
with suppress(OSError, AttributeError):
    _libtiff = ctypes.CDLL(Image.core.__file__)
    _libtiff.TIFFSetErrorHandler(None)
    _libtiff.TIFFSetWarningHandler(None)

# EXIF's orientations: those that swap width and height, and those in which the end of the stored
# rows or columns (the larger x or y, after swapping) becomes the upright photo's left or top edge.
SIDEWAYS = (5, 6, 7, 8)
RIGHT_ON_LEFT = (2, 3, 6, 7)
BOTTOM_ON_TOP = (3, 4, 7, 8)
TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


@dataclass(frozen=True)
class Upload:
    """A photo in memory, from an untrusted client.

    Attributes:
        name: its name in errors.
        data: the bytes of its file.
        max_pixels: a larger one is refused by its header, before it is decoded.
    """

    name: str
    data: bytes
    max_pixels: int

    # No other formats: Pillow would run Ghostscript on PostScript.
    formats: ClassVar = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")

    def __str__(self) -> str:
        return self.name

    def open(self, mode: str) -> BytesIO:
        """The bytes as a binary file, like `Path.open`."""
        assert mode == "rb"
        return BytesIO(self.data)


class ReducedImage(NamedTuple):
    """A photo that may have fewer pixels than its file, and where its pixels lie.

    The point (x, y) of the photo is the point `origin + (x, y) / reduction` of the image.

    Attributes:
        image: as `read_image` gives it, at reduced size.
        size: width and height of the photo in pixels of the file, upright.
        reduction: pixels of the file per pixel of the image: 1, 2, 4 or 8.
        origin: left and top edge of the photo in pixels of the image. If the photo's size is not
            a multiple of the reduction, the outermost pixels reach beyond the photo.
    """

    image: Image.Image
    size: tuple[int, int]
    reduction: float = 1.0
    origin: tuple[float, float] = (0.0, 0.0)


def read_image(path: str | Path | Upload, max_pixels: int = MAX_PIXELS) -> Image.Image:
    """The photo in 8-bit RGB, turned upright by its EXIF orientation, transparency laid on white.

    16-bit and floating-point greys are scaled to 0..255; an animation gives its first frame.
    Safe to call from several threads.

    Args:
        path: the file, or an upload.
        max_pixels: a larger photo is refused by its header; an upload has its own limit.

    Raises:
        InputError: the file is missing, a folder, no regular file, empty, no image, or damaged.
        PhotoSizeError: it has too many pixels, or decoding takes too much memory or time.
    """
    with opened(path, None, max_pixels) as photo:
        return photo.image


def read_reduced(
    path: str | Path | Upload, side: int, max_pixels: int = MAX_PIXELS
) -> ReducedImage:
    """The photo as `read_image` gives it, but large JPEGs are decoded at reduced size, much faster.

    libjpeg-turbo, which Pillow's wheels include, decodes a JPEG at 1/2, 1/4 or 1/8 of its size by
    leaving out high frequencies. torchvision.io decodes as fast, but only at full size.

    Args:
        path: the file, or an upload.
        side: the reduction keeps width and height at or above this.
        max_pixels: as `read_image`.

    Raises:
        InputError: as `read_image`.
        PhotoSizeError: as `read_image`.
    """
    with opened(path, side, max_pixels) as photo:
        return photo


@contextmanager
def opened(
    path: str | Path | Upload, side: int | None, max_pixels: int = MAX_PIXELS
) -> Iterator[ReducedImage]:
    """The photo as `read_reduced` gives it, whose memory is reserved until the block ends.

    Args:
        path: as `read_reduced`.
        side: as `read_reduced`; none for all pixels.
        max_pixels: as `read_image`.

    Raises:
        InputError: as `read_image`.
        PhotoSizeError: as `read_image`.
    """
    with ExitStack() as held:
        yield _read(path, side, max_pixels, held)


def _read(
    path: str | Path | Upload, side: int | None, max_pixels: int, held: ExitStack
) -> ReducedImage:
    path = path if isinstance(path, Upload) else Path(path)
    try:
        with _file(path) as file:
            size = file.seek(0, os.SEEK_END)
            if size == 0:
                raise InputError(f"{path}: empty file (0 bytes); copy or download the photo again")
            if size > MAX_FILE:
                raise PhotoSizeError(f"{path}: a file of {size / 1e9:.1f} GB; scale the photo down")
            file.seek(0)
            with _quiet:
                return _decoded(file, path, side, max_pixels, held)
    except InputError:
        raise
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"{path}: no such file; check the path") from None
    except PermissionError:
        raise InputError(f"{path}: may not be read; check the file's permissions") from None
    except UnidentifiedImageError:
        raise InputError(
            f"{path}: not an image that can be read; convert it to JPEG or PNG"
        ) from None
    except Image.DecompressionBombError:
        raise PhotoSizeError(f"{path}: too many pixels to be safe; scale the photo down") from None
    except MemoryError:
        raise PhotoSizeError(f"{path}: takes more memory than there is; scale it down") from None
    except Exception as error:  # Pillow's plugins raise nearly anything on damaged files
        if isinstance(error, OSError) and error.strerror:
            raise as_input_error(error, str(path), "cannot be read") from None
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(
            f"{path}: damaged or cut short ({reason}); copy or download the photo again"
        ) from None


def _file(path: Path | Upload) -> MeteredFile:
    """The opened file. Pipes are refused, since opening one would wait for its writer."""
    if isinstance(path, Upload):
        return MeteredFile(path.open("rb"), str(path))
    if "\0" in str(path):
        raise InputError(f"{path}: not a path, since it holds a NUL; check the path")
    mode = path.stat().st_mode
    if stat.S_ISDIR(mode):
        raise InputError(f"{path}: a folder, not a photo; give the path of an image file")
    if not stat.S_ISREG(mode):
        raise InputError(f"{path}: a device or pipe, not a photo; give the path of an image file")
    return MeteredFile(path.open("rb", buffering=0), str(path))


def _decoded(
    file: MeteredFile, path: Path | Upload, side: int | None, max_pixels: int, held: ExitStack
) -> ReducedImage:
    remedy = "scale the photo down"
    if isinstance(path, Upload):
        max_pixels = path.max_pixels
        image: Image.Image = Image.open(file, formats=path.formats)
    else:
        remedy += ", or raise max-megapixels"
        image = Image.open(file)
    file.is_header_read = True
    check_header(image, file, str(path), max_pixels, remedy)
    width, height = image.size
    drafted = None if side is None else image.draft(None, (side, side))
    reduction = width / drafted[1][2] if drafted else 1.0  # exact: the box is not rounded
    held.enter_context(MEMORY.reserve(decoding_bytes(image, width * height)))
    image.load()
    # Some formats give their final size only after decoding.
    check_pixels(image, str(path), max_pixels, remedy)
    try:
        orientation = image.getexif().get(ExifTags.Base.Orientation, 1)
    except Exception:  # damaged EXIF data only loses the orientation
        orientation = 1
    image = rgb(image)
    if orientation in TURNS:
        image = image.transpose(TURNS[orientation])
    # In stored order, only the last pixel of a row or column may reach beyond the photo.
    beyond = (-width % reduction / reduction, -height % reduction / reduction)
    if orientation in SIDEWAYS:
        width, height = height, width
        beyond = beyond[::-1]
    left = beyond[0] if orientation in RIGHT_ON_LEFT else 0.0
    top = beyond[1] if orientation in BOTTOM_ON_TOP else 0.0
    return ReducedImage(image, (width, height), reduction, (left, top))


class _Quiet:
    """Silences warnings while any thread is inside.

    `warnings.catch_warnings` swaps a global list. If two threads left in the order in which they
    entered, they would restore the wrong list, and warnings would stay off for ever.
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
