"""Finds the files of a data set: photos by nearly their names, JSON files by their keys."""

import mmap
import os
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable
from pathlib import Path, PureWindowsPath

from captioning.data.images import IMAGE_SUFFIXES
from captioning.errors import InputError
from captioning.files import walk

FOLDERS = ("images", "Images", "Flicker8k_Dataset", "flickr30k_images", "flickr30k-images")

MOST_FILES = 100
"""JSON files that are looked into; a folder of more has one for each photo."""

SPLITS = ("train", "val", "test")
ALIASES = {
    **{name: name for name in SPLITS},
    **dict.fromkeys(("training", "restval"), "train"),  # Karpathy's restval
    **dict.fromkeys(("validation", "valid", "dev"), "val"),
    "testing": "test",
}


def split_name(name: str) -> str:
    """The usual name of a split, such as val for Validation; other names are unchanged."""
    return ALIASES.get(name.strip().lower(), name.strip())


def split_in(name: str) -> str | None:
    """The split named by a word of a file or folder name; None unless exactly one is."""
    words = re.findall(r"[a-z]+", name.lower())
    found = {ALIASES[word] for word in words if word in ALIASES}
    return found.pop() if len(found) == 1 else None


def in_order(splits: Iterable[str]) -> tuple[str, ...]:
    """The names of splits without repeats: train, val and test first, then others by name."""
    found = set(splits)
    return (*(name for name in SPLITS if name in found), *sorted(found.difference(SPLITS)))


def photo_folders(*bases: Path) -> list[Path]:
    """Where photos usually are: in the bases, and in folders of usual names in these."""
    return [base / name for base in dict.fromkeys(bases) for name in ("", *FOLDERS)]


def folders_of(split: str, bases: Iterable[Path]) -> list[Path]:
    """The folders in the `bases` whose name has the split as a word, such as val2014 for val."""
    inside = (path for base in bases if base.is_dir() for path in sorted(base.iterdir()))
    return [path for path in inside if split_in(path.name) == split and path.is_dir()]


def json_files(root: Path, *keys: str) -> list[Path]:
    """The JSON files with these keys, in a folder and its folder annotations, or `root` itself."""
    if root.is_file():
        found = [root] if root.suffix.lower() == ".json" else []
    else:
        found = [*sorted(root.glob("*.json")), *sorted((root / "annotations").glob("*.json"))]
    found = found if len(found) <= MOST_FILES else []
    return [file for file in found if not keys or has_keys(file, *keys)]


def has_keys(file: Path, *keys: str) -> bool:
    """Whether the file has all of these keys, at any depth; it is searched, not parsed."""
    try:
        with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as m:
            return all(re.search(rb'"%b"\s*:' % key.encode(), m) for key in keys)
    except (OSError, ValueError):  # such as an empty file; whoever reads it says why
        return False


def find_images(
    names: Iterable[str],
    folders: Iterable[Path],
    source: Path,
    split: str | None = None,
    required: bool = True,
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
        required: whether to raise InputError, which names one path, if no image is found.
    """
    names, folders = list(names), list(dict.fromkeys(folders))
    existing = [folder for folder in folders if folder.is_dir()]
    for folder in existing:
        isfile = os.path.isfile  # a Path raises if a name is too long
        if exact := {name: folder / name for name in names if isfile(folder / name)}:
            missing = [name for name in dict.fromkeys(names) if name not in exact]
            found = exact | _similar(missing, folder, split, set(exact.values()))
            return [found.get(name, folder / name) for name in names]
    for folder in existing:
        if found := _similar(names, folder, split):
            return [found.get(name, folder / name) for name in names]
    if names and required:
        example = str(folders[0] / names[0])[:200]
        raise InputError(
            f"{source}: none of its images is in {', '.join(map(str, folders))}; there is no "
            f"{example!r}, for example; give their folder as images"
        )
    return [folders[0] / name for name in names]


def id_finder(known: Iterable[int | str]) -> Callable[[int | str], int | str | None]:
    """Finds an id among known ones, also where one file writes 12 and the other "12" or "000012".

    The function returns the known id, or None if there is none or several fit.
    """

    def number(image_id: int | str) -> int | str:
        digits = str(image_id)
        return digits.lstrip("0") or "0" if digits.isascii() and digits.isdecimal() else image_id

    exact, by_number = set(known), defaultdict(list)
    for image_id in exact:
        by_number[number(image_id)].append(image_id)

    def find(sought: int | str) -> int | str | None:
        fitting = [sought] if sought in exact else by_number.get(number(sought), [])
        return fitting[0] if len(fitting) == 1 else None

    return find


def ends(path: str) -> list[tuple[str, ...]]:
    """The parts of a path, all, without the first and so on, whatever their case and Unicode form.

    macOS writes an accent as a letter of its own.
    """
    plain = unicodedata.normalize("NFC", path).casefold().replace("\\", "/")
    parts = [part for part in plain.split("/") if part not in ("", ".")]
    return [tuple(parts[first:]) for first in range(len(parts))]


def _similar(
    names: Iterable[str], folder: Path, split: str | None, taken: Collection[Path] = ()
) -> dict[str, Path]:
    """The one file below a folder with most last parts of each name, or with all if any is taken.

    Names without such a file are left out, files that are taken, and folders of other splits.
    """
    if not names:
        return {}
    most = 1 if taken else None
    files: dict[tuple[str, ...], list[Path]] = defaultdict(list)
    others = set(SPLITS) - {split} if split in SPLITS else set()
    for parent, inside, found in walk(folder):
        inside[:] = [name for name in inside if split_in(name) not in others]
        for path in (parent / name for name in found):
            below = path.relative_to(folder)
            is_image = path.suffix.lower() in IMAGE_SUFFIXES
            for form in [below, below.with_suffix("")] if is_image else [below]:
                for end in ends(str(form))[:most]:
                    files[end].append(path)
    fitting = {}
    for name in names:
        candidates = next((files[end] for end in ends(name)[:most] if end in files), [])
        if len(candidates) > 1:
            candidates = [path for path in candidates if path.name == PureWindowsPath(name).name]
        if len(candidates) == 1:
            fitting[name] = candidates[0]
    counts = Counter(fitting.values())
    return {n: path for n, path in fitting.items() if counts[path] == 1 and path not in taken}
