"""Captions in files and folders: people's references, and the captions of models to score."""

import os
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath
from typing import Any

from captioning.data.images import IMAGE_SUFFIXES
from captioning.data.photo_files import photo_size
from captioning.data.readers import Problem, reader_for
from captioning.data.readers.dataset_files import ends, id_finder
from captioning.data.readers.reader import MALFORMED, field, numbered, parsed
from captioning.data.readers.rows import json_lines, names_photo, rows_of
from captioning.errors import InputError
from captioning.files import read_json, text_of

REMEDY = (
    "expected COCO's results format (a list of objects with image_id and caption), a table, or "
    "lines as of `captioning caption --json`"
)

CAPTIONS, SHARDS = "captions.json", "captions-*.jsonl"

KEYS = ("image", "image_id", "file_name")
"""What an object may call its image."""

Captions = dict[int | str, str]
"""One caption by image id or path of the photo."""


@dataclass(frozen=True)
class References:
    """Reference captions of images.

    Attributes:
        captions: by image id; none of them is empty.
        photos: the file name of each image's photo by image id, where the source says it.
    """

    captions: dict[int | str, tuple[str, ...]]
    photos: dict[int | str, str]


def read_references(path: str | Path, split: str | None = None) -> References:
    """The reference captions of a file or folder that `reader_for` knows, of all splits by default.

    Photos may be missing, except where their captions lie beside them. An image in two
    splits is an error unless one of these is named.
    """
    reader = reader_for(path, objects=False)
    reader.captions_only = True
    captions: dict[int | str, tuple[str, ...]] = {}
    photos: dict[int | str, str] = {}
    for name in reader.splits if split is None else (split,):
        contents = reader.contents(name)
        if bad := [problem.name for problem in contents.problems if problem.kind == MALFORMED]:
            raise InputError(f"{bad[0]}; fewer references would change scores")
        for record in contents.records:
            image = record.image_id
            if image in captions:
                raise InputError(f"{path}: image {image!r} is in two splits; name one by --split")
            captions[image] = record.captions
            photos |= {image: str(record.image)} if record.image.name else {}
    if not captions:
        raise InputError(f"{path}: no captions; give a file or a folder that has some")
    return References(captions, photos)


def image_finder(
    images: Collection[int | str], photos: Mapping[int | str, str]
) -> Callable[[int | str], int | str | None]:
    """Finds an image by its id, or by the path or name of its photo; None unless exactly one fits.

    Suffixes of photos and folders may differ. Of several photos of one name, the one with the
    longest common path counts. `photos` are names of photos by image id.
    """
    by_id = id_finder(images)
    by_end: dict[tuple[str, ...], list[int | str]] = defaultdict(list)
    for image, name in photos.items():
        for end in ends(_bare(name)):
            by_end[end].append(image)
    # The ids themselves may be file names, whose suffix others leave out.
    files = filter(names_photo, images)
    stems: dict[Any, int | str] = {PureWindowsPath(_bare(str(name))).name: name for name in files}
    by_stem = id_finder(stems if len(stems) == len(images) else ())

    def find(sought: int | str) -> int | str | None:
        if (known := by_id(sought)) is not None:
            return known
        if not names_photo(sought):
            return stems.get(by_stem(sought))
        found = next((by_end[end] for end in ends(_bare(str(sought))) if end in by_end), [])
        return found[0] if len(found) == 1 else None

    return find


def _bare(name: str) -> str:
    """The name without the suffix of a photo."""
    path = Path(name)
    return str(path.with_suffix("")) if path.suffix.lower() in IMAGE_SUFFIXES else name


def read_results(path: str | Path, caption_column: str | None = None) -> Captions:
    """One caption per image, by image id or path of the photo, except where there is an error.

    Args:
        path: a file in COCO's results format, a CSV or TSV table, lines of JSON as
            ``captioning caption`` writes them, the folder of its shards, or a folder of
            ``captioning evaluate``.
        caption_column: the column of the captions in a table, if it is not called by a usual name.
    """
    path = Path(path)
    files = [path]
    if path.is_dir():
        files = sorted(path.glob(SHARDS)) or [path / CAPTIONS]
    problems: list[Problem] = []
    found = [each for file in files for each in _captions_in(file, problems, caption_column)]
    if problems:  # fewer captions would change scores
        raise InputError(f"{problems[0].name}; {REMEDY}")
    if not found:
        raise InputError(f"{path}: no captions; {REMEDY}")
    return _once(found, path)


def _once(found: Iterable[tuple[int | str, str]], path: str | Path) -> Captions:
    captions: Captions = {}
    for image, caption in found:
        if image in captions:
            raise InputError(f"{path}: image {image!r} has two captions; leave one of them")
        captions[image] = caption
    return captions


def _captions_in(
    file: Path, problems: list[Problem], caption_column: str | None
) -> Iterator[tuple[int | str, str]]:
    """The captions of a file; photos with an error in place of a caption are left out."""
    if file.suffix.lower() in (".csv", ".tsv"):
        rows = rows_of(file, problems, caption_column)
        return ((row.name, text) for row in rows for text in row.captions)
    if file.suffix.lower() == ".jsonl" or text_of(file).lstrip().startswith("{"):
        entries = json_lines(file, problems)
    elif isinstance(content := read_json(file), list):
        entries = numbered(f"{file}: caption", content)
    else:
        raise InputError(f"{file}: not a list; {REMEDY}")
    return filter(None, parsed(entries, _caption_in, problems))


def _caption_in(entry: Any) -> tuple[int | str, str] | None:
    if isinstance(entry, dict) and "error" in entry:
        return None
    key = next((key for key in KEYS if isinstance(entry, dict) and key in entry), KEYS[0])
    return field(entry, key, int, str), field(entry, "caption", str)


def scored_captions(
    captions: Mapping[int | str, str], references: References, path: str | Path, source: str | Path
) -> Captions:
    """The captions of `read_results` by the ids of the references; see `image_finder`.

    Raises:
        InputError: an image has no reference, or two captions; the message names both files.
    """
    find = image_finder(references.captions, references.photos)
    known = {image: find(image) for image in captions}
    if unknown := [image for image, found in known.items() if found is None]:
        raise InputError(
            f"{path}: {len(unknown)} of {len(captions)} images have no caption in {source}, such "
            f"as {unknown[0]!r}; give the references of the same images"
        )
    return _once(((i, captions[image]) for image, i in known.items() if i is not None), path)


def named_photos(
    references: References, folder: str | Path, images: Iterable[int | str]
) -> dict[int | str, Path]:
    """The photo of each image, in a folder or in the folders that the references name there."""
    if not Path(folder).is_dir():
        raise InputError(f"{folder}: no such folder; give the folder of the photos")
    photos: dict[int | str, Path] = {}
    for image in images:
        if (name := references.photos.get(image)) is None:
            raise InputError(f"the references name no photo of image {image!r}")
        # Karpathy's names include the folder of the split, in which not everybody keeps the photos.
        inside = Path(folder, name)
        is_inside = os.path.isfile(inside)  # noqa: PTH113 - a Path raises if a name is too long
        photos[image] = inside if is_inside else Path(folder, inside.name)
    return photos


def check_photos(photos: Mapping[Any, Path]) -> None:
    """Raise if a photo is missing."""
    if missing := [path for path in photos.values() if photo_size(path) is None]:
        raise InputError(
            f"{missing[0]}: no such photo ({len(missing):,} of {len(photos):,} are missing); "
            "check the folder of the photos"
        )
