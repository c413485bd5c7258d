"""Photos: any image file that Pillow reads becomes RGB, or one clear line says why not."""

import os
import threading
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from captioning.errors import InputError

FORMATS = ("bmp", "gif", "jfif", "jpe", "jpeg", "jpg", "pgm", "png", "ppm", "tif", "tiff", "webp")
IMAGE_SUFFIXES = frozenset(f".{name}" for name in FORMATS)


def read_image(path: str | Path) -> Image.Image:
    """The photo in 8-bit RGB, upright as its EXIF orientation says, transparency laid on white.

    16-bit and floating-point greys are scaled to 0..255; of an animation it is the first frame.
    Safe to call from several threads.

    Raises:
        InputError: the file is missing, a folder, empty, no image, damaged, or larger than
            Pillow's limit against decompression bombs.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size == 0:
                raise InputError(f"{path}: empty file (0 bytes); copy or download the photo again")
            with _quiet:
                return _decoded(Image.open(file))
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
        raise InputError(f"{path}: too many pixels to be safe; scale the photo down") from None
    except Exception as error:  # on damaged files Pillow's plugins raise nearly anything
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(
            f"{path}: damaged or cut short ({reason}); copy or download the photo again"
        ) from None


def find_images(paths: Iterable[str | Path]) -> list[Path]:
    """The image files that `paths` stand for, in order.

    A folder stands for the images in it and below it, sorted by path and without hidden files.
    Every other path is kept as it is, also a missing one, so that reading it tells what is wrong.

    Raises:
        InputError: a folder holds no images.
    """
    found: list[Path] = []
    for path in map(Path, paths):
        if not path.is_dir():
            found.append(path)
            continue
        inside = sorted(file for file in path.rglob("*") if _is_visible_image(file, path))
        if not inside:
            raise InputError(f"{path}: no images in this folder; expected .jpg, .png and the like")
        found += inside
    return found


def _is_visible_image(file: Path, folder: Path) -> bool:
    # macOS leaves a "._photo.jpg" that is no image beside each photo on foreign disks.
    hidden = any(part.startswith(".") for part in file.relative_to(folder).parts)
    return file.suffix.lower() in IMAGE_SUFFIXES and not hidden and file.is_file()


def _decoded(image: Image.Image) -> Image.Image:
    image.load()
    try:
        image = ImageOps.exif_transpose(image)
    except Exception:  # the pixels are whole: damaged EXIF data only loses the orientation
        image.info.pop("exif", None)
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
