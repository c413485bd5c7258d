"""Finds the photos of paths, folders and lists, one after another."""

import codecs
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from captioning.data.images import IMAGE_SUFFIXES
from captioning.errors import InputError

LONGEST_LINE = 65_536  # bytes of a list's line; no system has longer paths


def find_photos(paths: Iterable[str | Path], listed: str | Path | None = None) -> Iterator[Path]:
    """The photos, one after another; at most the names of one folder are in memory.

    A folder gives the images in it and below it, sorted by the parts of their paths. Hidden files
    are skipped, and links to folders are not followed. Every other path is returned as it is, even
    a missing one, which raises an error when it is read.

    Args:
        paths: photos and folders.
        listed: a text file of further photos, one path a line; empty lines are skipped.

    Raises:
        InputError: a folder holds no images, or a folder or the list cannot be read.
    """
    for path in map(Path, paths):
        if not os.path.isdir(path):  # noqa: PTH112 - a Path raises if a name is too long
            yield path
            continue
        is_empty = True
        for photo in _photos_below(path):
            is_empty = False
            yield photo
        if is_empty:
            raise InputError(f"{path}: no images in this folder; expected .jpg, .png and the like")
    if listed is not None:
        yield from _photos_of_list(Path(listed))


def _photos_below(folder: Path) -> Iterator[Path]:
    try:
        with os.scandir(folder) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
        for entry in found:
            if entry.name.startswith("."):  # as macOS's "._photo.jpg", which is not an image
                continue
            path = folder / entry.name
            if entry.is_dir(follow_symlinks=False):
                yield from _photos_below(path)
            elif path.suffix.lower() in IMAGE_SUFFIXES and entry.is_file():
                yield path
    except OSError as error:
        raise InputError(
            f"{folder}: cannot be read ({error.strerror}); check the folder's permissions"
        ) from None


def _photos_of_list(file: Path) -> Iterator[Path]:
    try:
        with file.open("rb") as lines:
            for number, line in enumerate(iter(lambda: lines.readline(LONGEST_LINE + 1), b""), 1):
                if len(line) > LONGEST_LINE or b"\0" in line:
                    raise InputError(
                        f"{file}: line {number} is not a path; give a text file of one path a line"
                    )
                if number == 1:
                    line = line.removeprefix(codecs.BOM_UTF8)  # which Windows' editors write
                # File names are bytes, and those that are not UTF-8 must stay unchanged.
                if path := line.decode("utf-8", "surrogateescape").rstrip("\r\n"):
                    yield Path(path)
    except FileNotFoundError:
        raise InputError(f"{file}: no such file; check the path of the list") from None
    except OSError as error:
        raise InputError(
            f"{file}: cannot be read ({error.strerror}); give a text file of one path a line"
        ) from None
