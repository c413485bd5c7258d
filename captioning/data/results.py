"""Captions of models in files and folders, and where the photos of their images lie."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from captioning.data.readers.columns import columns_of, rows_in
from captioning.data.readers.reader import Problem, field, numbered, parsed
from captioning.data.readers.rows import rows_of
from captioning.data.references import References, read_references, with_ids_of
from captioning.errors import InputError, reading
from captioning.untrusted import text_of

REMEDY = (
    "expected COCO's results format (a list of objects with image_id and caption), a table, or "
    "lines as of `captioning caption --json`"
)

CAPTIONS = "captions.json"
SHARDS = "captions-*.jsonl"
EVALUATIONS = ("evaluation-*", "ensemble-*")

KEYS = ("image", "image_id", "file_name")
"""What an object may call its image."""


def read_results(path: str | Path) -> dict[int | str, str]:
    """One caption per image, by image id or path of the photo.

    Args:
        path: a file in COCO's results format, a CSV or TSV table, lines of JSON as
            ``captioning caption`` writes them, the folder of its shards, or a folder of
            ``captioning evaluate`` or the one training folder that holds it. Photos that could not
            be captioned are left out.

    Raises:
        InputError: the file is missing or malformed, has no captions, or two of one image; or a
            folder holds none of these, or several evaluations.
    """
    path = Path(path)
    if path.is_dir() and not list(path.glob(SHARDS)):
        path = _evaluation(path) / CAPTIONS
    captions: dict[int | str, str] = {}
    problems: list[Problem] = []
    for file in sorted(path.glob(SHARDS)) if path.is_dir() else [path]:
        for image, caption in _captions_in(file, problems):
            if image in captions:
                raise InputError(f"{path}: image {image!r} has two captions; leave one of them")
            captions[image] = caption
    if problems:  # fewer captions would change scores
        raise InputError(f"{problems[0].name}; {REMEDY}")
    if not captions:
        raise InputError(f"{path}: no captions; {REMEDY}")
    return captions


def scored_captions(
    captions: Mapping[int | str, str],
    references: References,
    path: str | Path,
    source: str | Path,
) -> dict[int | str, str]:
    """The captions of `read_results` by the ids of the references.

    Args:
        captions: of some of the images.
        references: of all images.
        path: of the captions, for messages.
        source: of the references, for messages.

    Raises:
        InputError: an image has no reference, or two captions are of one image.
    """
    captions = with_ids_of(captions, references.captions, path, references.photos)
    if unknown := [image for image in captions if image not in references.captions]:
        raise InputError(
            f"{path}: {len(unknown)} of {len(captions)} images have no caption in {source}, such "
            f"as {unknown[0]!r}; give the references of the same images"
        )
    return captions


def named_photos(
    references: str | Path, folder: str | Path, images: Iterable[int | str]
) -> dict[int | str, Path]:
    """The photo of each image, in a folder.

    Args:
        references: a source for `read_references` that names the photo of each image.
        folder: of the photos, or of the folders that the file names, such as val2014.
        images: their ids in the results or ratings.

    Raises:
        InputError: the folder is missing, or the file is malformed or lacks an image.
    """
    if not Path(folder).is_dir():
        raise InputError(f"{folder}: no such folder; give the folder of the photos")
    names = {str(image): name for image, name in read_references(references).photos.items()}
    photos: dict[int | str, Path] = {}
    for image in images:
        name = names.get(str(image)) or names.get(Path(str(image)).stem)
        if name is None:
            raise InputError(f"{references}: names no photo of image {image!r}")
        # Karpathy's names include the folder of the split, in which not everybody keeps the photos.
        inside = Path(folder) / name
        is_inside = os.path.isfile(inside)  # noqa: PTH113 - a Path raises if a name is too long
        photos[image] = inside if is_inside else Path(folder) / inside.name
    return photos


def check_photos(photos: Mapping[Any, Path]) -> None:
    """Raise if a photo is missing."""
    missing = [path for path in photos.values() if not os.path.isfile(path)]  # noqa: PTH113
    if missing:
        raise InputError(
            f"{missing[0]}: no such photo ({len(missing):,} of {len(photos):,} are missing); "
            "check the folder of the photos"
        )


def _evaluation(folder: Path) -> Path:
    """The folder itself, or the one in it, that holds an evaluation's captions."""
    if (folder / CAPTIONS).exists():
        return folder
    found = [path.parent for name in EVALUATIONS for path in folder.glob(f"{name}/{CAPTIONS}")]
    if len(found) != 1:
        held = ", ".join(sorted(path.name for path in found)) or f"no {CAPTIONS} and no {SHARDS}"
        raise InputError(
            f"{folder}: holds {held}; give a folder of `captioning evaluate` or `caption --out`"
        )
    return found[0]


def _captions_in(file: Path, problems: list[Problem]) -> Iterator[tuple[int | str, str]]:
    """The captions of a file; photos with an error in place of a caption are left out."""
    if file.suffix.lower() in (".csv", ".tsv"):
        rows = list(rows_of(file, problems))
        columns = columns_of(file, rows)
        for _, several in parsed(rows, partial(rows_in, columns=columns), problems):
            yield from ((row.name, caption) for row in several for caption in row.captions)
        return
    text = text_of(file)
    entries: Iterable[tuple[str, Any]]
    if file.suffix.lower() == ".jsonl" or _is_object(text.lstrip().partition("\n")[0]):
        lines = numbered(f"{file}: line", text.split("\n"))
        entries = parsed((line for line in lines if line[1].strip()), json.loads, problems)
    else:
        with reading(f"{file}: not a readable JSON file"):
            found = json.loads(text)
        if not isinstance(found, list):
            raise InputError(f"{file}: not a list; {REMEDY}")
        entries = numbered(f"{file}: caption", found)
    for _, pair in parsed(entries, _caption_in, problems):
        if pair is not None:
            yield pair


def _is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _caption_in(entry: Any) -> tuple[int | str, str] | None:
    if isinstance(entry, dict) and "error" in entry:
        return None
    key = next((key for key in KEYS if isinstance(entry, dict) and key in entry), KEYS[0])
    return field(entry, key, int, str), field(entry, "caption", str)
