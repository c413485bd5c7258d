"""Captions of models in files and folders, and where the photos of their images lie."""

import os
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from captioning.data.readers import karpathy
from captioning.data.readers.columns import columns_of, rows_in
from captioning.data.readers.flickr8k import TOKENS
from captioning.data.readers.rows import rows_of
from captioning.data.references import (
    References,
    is_coco,
    read_references,
    with_ids_of,
)
from captioning.errors import InputError
from captioning.untrusted import field, json_of, opened, read_json, short, text_of

MAX_RESULTS_BYTES = 256 * 1024**2  # captions of all of COCO's photos take 15 MB

RESULTS_REMEDY = "expected COCO's results format (a list of objects with image_id and caption)"
LINES_REMEDY = "expected a line as of `captioning caption --json`, with image and caption"
NAMES_REMEDY = (
    "expected COCO's annotations (images with id and file_name), or Karpathy's format (images with "
    "filename), to find the photos"
)

CAPTIONS = "captions.json"
SHARDS = "captions-*.jsonl"
EVALUATIONS = ("evaluation-*", "ensemble-*")

TABLES = (".csv", ".tsv")
KEYS = ("image", "image_id", "file_name")
"""What a line of JSON may call its image."""

START = 65_536  # bytes read to check whether a file has lines of JSON


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
    pairs: Iterator[tuple[int | str, str]]
    if path.is_dir():
        if not (files := sorted(path.glob(SHARDS))):
            return read_results(_evaluation(path) / CAPTIONS)
        pairs = (pair for file in files for pair in _of_lines(file))
    elif path.suffix.lower() in TABLES:
        pairs = _of_table(path)
    elif path.suffix.lower() == ".jsonl" or _has_lines(path):
        pairs = _of_lines(path)
    else:
        pairs = _of_list(path)
    captions: dict[int | str, str] = {}
    for image, caption in pairs:
        if image in captions:
            raise InputError(f"{path}: image {short(image)} has two captions; leave one of them")
        captions[image] = caption
    if not captions:
        raise InputError(f"{path}: no captions; {RESULTS_REMEDY}")
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
        references: a source for `read_references`, which names the photo of each image. In
            Flickr8k's text files, an image's id is the name of its photo.
        folder: of the photos, or of the folders that the file names, such as val2014.
        images: their ids in the results or ratings.

    Raises:
        InputError: the folder is missing, or the file is malformed or lacks an image.
    """
    if not Path(folder).is_dir():
        raise InputError(f"{folder}: no such folder; give the folder of the photos")
    names = {}
    if Path(references).suffix.lower() == ".txt" or (Path(references) / TOKENS).exists():
        names = {str(i): str(i) if "." in str(i) else f"{i}.jpg" for i in images}
    elif Path(references).suffix.lower() == ".json" and not Path(references).is_dir():
        dataset = read_json(references)
        get = partial(field, source=references, remedy=NAMES_REMEDY)
        for entry in get(dataset, "images", list):
            if is_coco(dataset):
                image, name = get(entry, "id", int, str), get(entry, "file_name", str)
            else:
                image, name = karpathy.image_id(entry, get), karpathy.photo_name(entry, get)
            names[str(image)] = name
    else:
        names = {str(image): name for image, name in read_references(references).photos.items()}
    photos: dict[int | str, Path] = {}
    for image in images:
        if str(image) not in names:
            raise InputError(
                f"{references}: no photo of image {short(image)} is named; {NAMES_REMEDY}"
            )
        # Karpathy's names include the folder of the split, in which not everybody keeps the photos.
        inside = Path(folder) / names[str(image)]
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


def _has_lines(path: Path) -> bool:
    """Whether a file begins with a line for a photo."""
    with opened(path) as file:
        start = file.read(START)
    try:
        entry = json_of(start.removeprefix(b"\xef\xbb\xbf").lstrip().partition(b"\n")[0])
    except ValueError:
        return False
    return isinstance(entry, dict) and "image" in entry


def _of_list(path: Path) -> Iterator[tuple[int | str, str]]:
    """The captions of a file in COCO's results format."""
    entries = read_json(path, MAX_RESULTS_BYTES)
    if not isinstance(entries, list):
        raise InputError(f"{path}: not a list; {RESULTS_REMEDY}")
    get = partial(field, source=path, remedy=RESULTS_REMEDY)
    for entry in entries:
        yield get(entry, "image_id", int, str), get(entry, "caption", str)


def _of_lines(path: Path) -> Iterator[tuple[int | str, str]]:
    """The captions of lines of JSON; lines with an error are left out."""
    for number, line in enumerate(text_of(path, MAX_RESULTS_BYTES).split("\n"), start=1):
        if not line.strip():
            continue
        place = f"{path}: line {number}"
        try:
            entry = json_of(line)
        except ValueError as error:
            raise InputError(f"{place} is not JSON ({error}); {LINES_REMEDY}") from None
        get = partial(field, entry, source=place, remedy=LINES_REMEDY)
        if not isinstance(entry, dict) or "error" not in entry:
            key = next((key for key in KEYS if isinstance(entry, dict) and key in entry), KEYS[0])
            yield get(key, int, str), get("caption", str)


def _of_table(path: Path) -> Iterator[tuple[int | str, str]]:
    """The captions of a table."""
    if not (entries := list(rows_of(path))):
        return
    columns = columns_of(path, entries)
    for place, entry in entries:
        for row in rows_in(entry, columns, place):
            yield from ((row.name, caption) for caption in row.captions)
