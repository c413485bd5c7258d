"""Finds the files of a data set: photos by nearly their names, JSON files by their keys."""

import os
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from captioning.data.images import IMAGE_SUFFIXES
from captioning.data.readers.reader import LONGEST, SPLITS, split_in
from captioning.errors import InputError
from captioning.untrusted import MAX_BYTES, opened

FOLDERS = ("images", "Images", "Flicker8k_Dataset", "flickr30k_images", "flickr30k-images")
"""Usual names of the folder of the photos."""

MOST_FILES = 100
"""JSON files that are looked into; a folder of more has one for each photo."""

BLOCK, OVERLAP = 2**22, 256  # bytes


def photo_folders(*bases: Path) -> list[Path]:
    """Where photos usually are: in the bases, and in folders of usual names in these."""
    return [base / name for base in dict.fromkeys(bases) for name in ("", *FOLDERS)]


def find_images(
    names: Iterable[str],
    folders: Iterable[Path],
    source: Path,
    split: str | None = None,
    required: bool = True,
    as_written: bool = False,
) -> list[Path]:
    """The path of each image.

    The first folder that holds one of the names as written holds them all; the others may differ
    there in case, Unicode form, slashes or a missing suffix. If no folder holds any name as
    written, the trailing parts of the names decide, in and below the folders, so that images are
    found by another machine's paths. A name that fits several files, or a file that fits several
    names, is left as written, in the first folder.

    Args:
        names: of the images, relative to their folder.
        folders: where they may be.
        source: the file that lists the images, for messages.
        split: theirs; folders named for another split are not searched.
        required: whether it is an error if no image is found.
        as_written: whether to return the names without looking for the files.

    Raises:
        InputError: no image is found; the message names one path that was looked for.
    """
    if as_written:
        return [Path(name) for name in names]
    names, folders = list(names), list(dict.fromkeys(folders))
    existing = [folder for folder in folders if folder.is_dir()]
    listed = cache(_listed)  # much faster than to ask for each of many
    for folder in existing:
        paths = ((name, os.path.split(os.path.join(folder, name))) for name in names)  # noqa: PTH118
        found = {name: folder / name for name, (parent, base) in paths if base in listed(parent)}
        if found or not names:
            missing = [name for name in dict.fromkeys(names) if name not in found]
            if missing:
                found |= _similar(missing, folder, set(found.values()), split, whole=True)
            return [found.get(name, folder / name) for name in names]
    for folder in existing:
        if found := _similar(dict.fromkeys(names), folder, set(), split, whole=False):
            return [found.get(name, folder / name) for name in names]
    if names and required:
        looked = ", ".join(map(str, folders))
        example = str(folders[0] / names[0])[:LONGEST]
        raise InputError(
            f"{source}: none of its images is in {looked}; there is no {example!r}, for example; "
            "put them there, or give their folder as images"
        )
    return [folders[0] / name for name in names]


def folders_of(split: str, bases: Iterable[Path]) -> list[Path]:
    """The folders in the `bases` whose name has the split as a word, such as val2014 for val."""
    inside = (path for base in bases if base.is_dir() for path in sorted(base.iterdir()))
    return [path for path in inside if split_in(path.name) == split and path.is_dir()]


def json_files(root: Path) -> list[Path]:
    """The JSON files in a folder and in its folder annotations, or `root` itself if it is one."""
    if root.is_file():
        return [root] if root.suffix.lower() == ".json" else []
    found = [*sorted(root.glob("*.json")), *sorted((root / "annotations").glob("*.json"))]
    return found if len(found) <= MOST_FILES else []


def has_keys(file: Path, *keys: str) -> bool:
    """Whether the file has all of these keys, at any depth; it is searched, not parsed."""
    wanted = {re.compile(rb'"%b"\s*:' % key.encode()) for key in keys}
    try:
        with opened(file) as content:
            last = b""
            for _ in range(MAX_BYTES // BLOCK + 1):
                block = content.read(BLOCK)
                text = last + block
                wanted = {key for key in wanted if not key.search(text)}
                last = text[-OVERLAP:]
                if not wanted or not block:
                    return not wanted
    except (InputError, OSError):  # whoever reads the file says why it cannot
        pass
    return False


def _listed(folder: str) -> frozenset[str]:
    try:
        return frozenset(os.listdir(folder))  # noqa: PTH208 - a Path raises if a name is too long
    except (OSError, ValueError):
        return frozenset()


def _similar(
    names: Iterable[str], folder: Path, taken: set[Path], split: str | None, whole: bool
) -> dict[str, Path]:
    """The one file below a folder that each name fits; names without such a file are left out.

    Args:
        names: of images.
        folder: searched with all folders below it.
        taken: files that other names fit exactly.
        split: folders of other splits are not searched.
        whole: whether all parts of the name must fit, not only the last ones.
    """
    files: dict[str, list[Path]] = defaultdict(list)  # by file name, with and without its suffix
    for parent, inside, found in os.walk(folder):
        inside[:] = [name for name in inside if not name.startswith(".") and _is_of(split, name)]
        for name in found:
            if not name.startswith("."):
                files[_plain(name)].append(Path(parent, name))
                stem, dot, suffix = _plain(name).rpartition(".")
                if dot + suffix in IMAGE_SUFFIXES:
                    files[stem].append(Path(parent, name))
    fitting = {}
    for name in names:
        parts = [part for part in name.replace("\\", "/").split("/") if part not in ("", ".")]
        if not parts:
            continue
        by_length: dict[int, list[Path]] = defaultdict(list)
        for path in files.get(_plain(parts[-1]), ()):
            folders = path.relative_to(folder).parts[:-1]
            length = _common(parts[:-1], folders)
            if not whole or length == len(folders) == len(parts) - 1:
                by_length[length].append(path)
        candidates = by_length[max(by_length, default=0)]
        exact = [path for path in candidates if path.name == parts[-1]]
        if len(exact or candidates) == 1:
            fitting[name] = (exact or candidates)[0]
    counts = Counter(fitting.values())
    return {n: path for n, path in fitting.items() if counts[path] == 1 and path not in taken}


def _common(first: Iterable[str], second: Iterable[str]) -> int:
    """The number of last parts that two paths share."""
    count = 0
    for one, other in zip(reversed([*first]), reversed([*second]), strict=False):
        if _plain(one) != _plain(other):
            break
        count += 1
    return count


def _is_of(split: str | None, folder: str) -> bool:
    return split not in SPLITS or split_in(folder) in (None, split)


def _plain(name: str) -> str:
    """A name without case, in one Unicode form: macOS writes an accent as a letter of its own."""
    return unicodedata.normalize("NFC", name).casefold()
