"""Finds the photos of paths, folders and lists, in order and in constant memory."""

import heapq
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from captioning.data.images import IMAGE_SUFFIXES
from captioning.errors import InputError

LONGEST_LINE = 65_536
"""The most bytes of a line of a list; no system has longer paths."""

AT_A_TIME = 50_000
"""Names kept in memory at a time; a folder with more is listed several times."""


def find_photos(
    paths: Iterable[str | Path], listed: str | Path | None = None, at_a_time: int = AT_A_TIME
) -> Iterator[Path]:
    """The photos, one after another; memory does not grow with their number.

    A folder gives the images in it and below it, sorted by the parts of their paths. Hidden files
    are skipped, and links to folders are not followed. Every other path is kept as it is, even a
    missing one, so that reading it raises the error.

    Args:
        paths: photos and folders.
        listed: a text file of further photos, one path a line; empty lines are skipped.
        at_a_time: names of a folder kept in memory.

    Raises:
        InputError: a folder holds no images, a folder or the list cannot be read, or a line of the
            list is no path.
    """
    for path in map(Path, paths):
        if os.path.isdir(path):  # noqa: PTH112 - a Path raises where a name is too long
            yield from _photos_of_folder(path, at_a_time)
        else:
            yield path
    if listed is not None:
        yield from _photos_of_list(Path(listed))


def _photos_of_folder(folder: Path, at_a_time: int) -> Iterator[Path]:
    inside = _photos_below(folder, at_a_time)
    first = next(inside, None)
    if first is None:
        raise InputError(f"{folder}: no images in this folder; expected .jpg, .png and the like")
    yield first
    yield from inside


def _photos_below(folder: Path, at_a_time: int) -> Iterator[Path]:
    try:
        for entry in _sorted_entries(folder, at_a_time):
            path = folder / entry.name
            if entry.is_dir(follow_symlinks=False):
                yield from _photos_below(path, at_a_time)
            elif entry.is_file():
                yield path
    except OSError as error:
        raise InputError(
            f"{folder}: cannot be read ({error.strerror}); check the folder's permissions"
        ) from None


def _sorted_entries(folder: Path, at_a_time: int) -> Iterator[os.DirEntry[str]]:
    last = ""
    while True:
        with os.scandir(folder) as entries:
            following = (entry for entry in entries if entry.name > last and _is_wanted(entry))
            first = heapq.nsmallest(at_a_time, following, key=lambda entry: entry.name)
        yield from first
        if len(first) < at_a_time:
            return
        last = first[-1].name


def _is_wanted(entry: os.DirEntry[str]) -> bool:
    # macOS leaves a "._photo.jpg" that is no image beside each photo on foreign disks.
    if entry.name.startswith("."):
        return False
    _, suffix = os.path.splitext(entry.name)  # noqa: PTH122 - a Path for every name is slow
    return suffix.lower() in IMAGE_SUFFIXES or entry.is_dir(follow_symlinks=False)


def _photos_of_list(file: Path) -> Iterator[Path]:
    try:
        mode = file.stat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode) or stat.S_ISDIR(mode)):
            raise InputError(f"{file}: a device, not a list; give a text file or a pipe")
        with file.open("rb") as lines:
            for number, line in enumerate(iter(lambda: lines.readline(LONGEST_LINE + 1), b""), 1):
                if len(line) > LONGEST_LINE:
                    raise InputError(
                        f"{file}: line {number} is longer than {LONGEST_LINE} bytes; "
                        "give a text file of one path a line"
                    )
                if b"\0" in line:
                    raise InputError(
                        f"{file}: line {number} holds a NUL, which no path has; "
                        "give a text file of one path a line"
                    )
                # File names are bytes, and those that are not UTF-8 must stay unchanged.
                if path := line.decode("utf-8", "surrogateescape").rstrip("\r\n"):
                    yield Path(path)
    except FileNotFoundError:
        raise InputError(f"{file}: no such file; check the path of the list") from None
    except OSError as error:
        raise InputError(
            f"{file}: cannot be read ({error.strerror}); give a text file of one path a line"
        ) from None
