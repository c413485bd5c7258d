"""Finds the files of a data set: photos by their names, JSON files by their keys."""

import mmap
import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path, PureWindowsPath

from captioning.data.images import IMAGE_SUFFIXES, raw_twins
from captioning.data.splits import SPLITS, split_in
from captioning.errors import InputError
from captioning.files import opened, walk

FOLDERS = ("images", "Images", "Flicker8k_Dataset", "flickr30k_images", "flickr30k-images")

MAX_FILES = 100
"""Maximum number of JSON files to look into; a folder of more has one for each photo."""

MAX_PARTS = 8
"""Maximum number of last parts of a path that are compared."""


def photo_folders(*bases: Path) -> list[Path]:
    """Where photos usually are: in the bases, and in folders of usual names in these."""
    return [base / name for base in dict.fromkeys(bases) for name in ("", *FOLDERS)]


def folders_of(split: str, bases: Iterable[Path]) -> list[Path]:
    """The folders in the `bases` whose name has the split as a word, such as val2014 for val."""
    folders: list[Path] = []
    for base in bases:
        if base.is_dir():
            paths = sorted(base.iterdir())
            folders += [p for p in paths if split_in(p.name) == split and p.is_dir()]
    return folders


def json_files(root: Path, *keys: str) -> list[Path]:
    """The JSON files with these keys, in a folder and its folder annotations, or `root` itself."""
    if root.is_file():
        files = [root] if root.suffix.lower() == ".json" else []
    else:
        files = [*sorted(root.glob("*.json")), *sorted((root / "annotations").glob("*.json"))]
    if len(files) > MAX_FILES:
        return []
    return [file for file in files if not keys or has_keys(file, *keys)]


def has_keys(file: Path, *keys: str) -> bool:
    """Whether the file has all of these keys, at any depth; it is searched, not parsed."""
    try:
        with (
            opened(file) as stream,
            mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content,
        ):
            return all(re.search(rb'"%b"\s*:' % key.encode(), content) for key in keys)
    except InputError:  # such as of an empty file; whoever reads it says why
        return False


def find_images(
    names: Iterable[str],
    folders: Iterable[Path],
    source: Path,
    split: str | None = None,
    required: bool = True,
) -> list[Path]:
    """The path of each image.

    The first folder that holds one of the names as written holds them all. If none does, images are
    found in and below the folders by their file names, or by these without suffix, and as many of
    the parts before them as some file has, so a list with paths of another machine is understood. A
    name that fits several files, or a file that fits several names, is not found; such a path is in
    the first folder.

    Args:
        names: of the images, relative to their folder.
        folders: where they may be.
        source: the file that lists the images, for messages.
        split: of the images; folders named for another split are not searched.
        required: whether to raise InputError, which names one path, if no image is found.
    """
    names, folders = list(names), list(dict.fromkeys(folders))
    existing = [folder for folder in folders if folder.is_dir()]
    is_file = os.path.isfile  # a Path raises if a name is too long
    for folder in existing:
        if any(is_file(folder / name) for name in names):
            return [folder / name for name in names]
    for folder in existing:
        if paths := _images_below(names, folder, split):
            return [paths.get(name, folder / name) for name in names]
    if names and required:
        example = names[0][:200]
        raise InputError(
            f"{source}: none of its images is in or below {', '.join(map(str, folders))}; looked "
            f"for {example!r}, for example, and for its file name; give the folder by --images "
            "(in a configuration, the reader's images)"
        )
    return [folders[0] / name for name in names]


def id_finder(image_ids: Iterable[int | str]) -> Callable[[int | str], int | str | None]:
    """Finds an id among these, also where one file writes 12 and the other "12" or "000012".

    The function returns the id as it is among these, or None if there is none or several fit.
    """

    def number(image_id: int | str) -> int | str:
        digits = str(image_id)
        return digits.lstrip("0") or "0" if digits.isascii() and digits.isdecimal() else image_id

    listed_ids = set(image_ids)
    ids_by_number: dict[int | str, list[int | str]] = defaultdict(list)
    for image_id in listed_ids:
        ids_by_number[number(image_id)].append(image_id)

    def find(image_id: int | str) -> int | str | None:
        if image_id in listed_ids:
            return image_id
        ids = ids_by_number.get(number(image_id), [])
        return ids[0] if len(ids) == 1 else None

    return find


def path_ends(path: str) -> list[tuple[str, ...]]:
    """The last parts of a path, from `MAX_PARTS` of them to the file name alone."""
    parts = PureWindowsPath(path).parts[-MAX_PARTS:]  # separated by slashes or backslashes
    return [parts[first:] for first in range(len(parts))]


def _images_below(names: Iterable[str], folder: Path, split: str | None) -> dict[str, Path]:
    """By name the one file in or below a folder that shares most of its last parts."""
    files: dict[tuple[str, ...], list[Path]] = defaultdict(list)
    photos_by_stem: dict[tuple[str, ...], list[Path]] = defaultdict(list)
    other_splits = set(SPLITS) - {split} if split in SPLITS else set()
    for parent, subfolders, file_names in walk(folder):
        subfolders[:] = [name for name in subfolders if split_in(name) not in other_splits]
        twins = raw_twins(file_names)
        for path in (parent / name for name in file_names):
            relative_path = path.relative_to(folder)
            for end in path_ends(str(relative_path)):
                files[end].append(path)
            if path.suffix.lower() in IMAGE_SUFFIXES and path.name not in twins:
                for end in path_ends(str(relative_path.with_suffix(""))):
                    photos_by_stem[end].append(path)
    images: dict[str, Path] = {}
    for name in names:
        ends = path_ends(name)
        fitting = [files[end] for end in ends if end in files]
        fitting += [photos_by_stem[end] for end in ends if end in photos_by_stem]
        if fitting and len(fitting[0]) == 1:
            [images[name]] = fitting[0]
    counts = Counter(images.values())
    return {name: path for name, path in images.items() if counts[path] == 1}
