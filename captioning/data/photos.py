"""Finds the photos of paths, folders and lists, and names files that are written for each."""

import codecs
import glob
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from itertools import chain, count
from pathlib import Path

from captioning.data.images import IMAGE_SUFFIXES, is_photo
from captioning.data.photo_shards import USUAL, is_shard, photos_in
from captioning.errors import InputError, reading

STDIN = "-"
"""Stands for standard input, which lists photos."""

LONGEST_NAME = 50
"""Characters of a photo's name in its picture's where it is longer than file systems allow."""


def find_photos(paths: Iterable[str | Path], listed: str | Path | None = None) -> Iterator[Path]:
    """The photos, one after another; at most the names of one folder are in memory.

    A folder gives the photos in it and below it, sorted by the parts of their paths: files with the
    suffix of a photo, files that begin as a photo does, and the photos in shards of usual names. A
    shard gives its photos. Hidden files are skipped, and links to folders are not followed. Every
    other path is returned as it is, even a missing one, which raises an error when it is read.

    Args:
        paths: photos, folders, shards, and patterns such as ``photos/*.jpg`` that no shell has
            expanded; ``-`` stands for a list on standard input.
        listed: a text file of further photos, one path a line, or ``-``; empty lines are skipped.

    Raises:
        InputError: a folder holds no photos, or a folder or the list cannot be read.
    """
    for path in [paths] if isinstance(paths, str | Path) else paths:
        if str(path) == STDIN:
            yield from _photos_of_list(STDIN)
        elif os.path.isdir(path):  # noqa: PTH112 - a Path raises if a name is too long
            below = _photos_below(Path(path))
            first = next(below, None)
            if first is None:
                raise InputError(f"{path}: no images in this folder; expected .jpg, .png and so on")
            yield from chain([first], below)
        elif is_shard(path):
            yield from photos_in(Path(path))
        elif glob.has_magic(str(path)) and not os.path.lexists(path):
            found = sorted(glob.glob(str(path), recursive=True))  # noqa: PTH207 - also absolute ones
            yield from find_photos(found) if found else [Path(path)]
        else:
            yield Path(path)
    if listed is not None:
        yield from _photos_of_list(listed)


def picture_names(
    photos: Iterable[Path],
    folder: str | Path,
    suffix: str = ".png",
    taken_names: Iterable[str] = (),
) -> dict[Path, Path]:
    """The path of each photo's picture in the folder: its own name, numbered if taken.

    Args:
        photos: paths; each may come several times.
        folder: of the pictures.
        suffix: of the pictures.
        taken_names: names of other files of the folder.

    Raises:
        InputError: a picture would replace one of the photos.
    """
    photos = dict.fromkeys(photos)
    originals = {os.path.realpath(photo): photo for photo in photos}
    names: dict[Path, Path] = {}
    taken = {name.casefold() for name in taken_names}  # some file systems ignore case
    for photo in photos:
        stem = photo.stem if len(os.fsencode(photo.stem)) <= 200 else photo.stem[:LONGEST_NAME]
        numbered = chain([f"{stem}{suffix}"], (f"{stem}-{number}{suffix}" for number in count(2)))
        name = next(name for name in numbered if name.casefold() not in taken)
        taken.add(name.casefold())
        names[photo] = Path(folder) / name
        original = originals.get(os.path.realpath(names[photo]))
        if original is not None:
            raise InputError(
                f"{folder}: the {suffix} of {photo} would replace the photo {original}; choose "
                "another folder"
            )
    return names


def _photos_below(folder: Path) -> Iterator[Path]:
    with reading(folder), os.scandir(folder) as entries:
        found = sorted(entries, key=lambda entry: entry.name)
    for entry in found:
        if entry.name.startswith("."):  # as macOS's "._photo.jpg", which is not an image
            continue
        path = folder / entry.name
        if entry.is_dir(follow_symlinks=False):
            yield from _photos_below(path)
        elif entry.is_file() and (path.suffix.lower() in IMAGE_SUFFIXES or is_photo(path)):
            yield path
        elif USUAL.fullmatch(entry.name) and is_shard(path):
            yield from photos_in(path)


def _photos_of_list(file: str | Path) -> Iterator[Path]:
    is_stdin = str(file) == STDIN
    name = "standard input" if is_stdin else str(file)
    with (
        reading(name),
        nullcontext(sys.stdin.buffer) if is_stdin else Path(file).open("rb") as lines,
    ):
        # File names are bytes, and those that are not UTF-8 must stay unchanged.
        for number, line in enumerate(lines, 1):
            if b"\0" in line:
                raise InputError(f"{name}: line {number} is not a path")
            line = line.removeprefix(codecs.BOM_UTF8)  # of Windows' editors
            if path := os.fsdecode(line).rstrip("\r\n"):
                yield Path(path)
