"""Results and references in JSON files, and where the photos of their images lie."""

import os
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from captioning.data.readers import karpathy
from captioning.data.records import MOST_CAPTIONS, id_finder
from captioning.errors import InputError
from captioning.untrusted import field, read_json, short

MAX_RESULTS_BYTES = 256 * 1024**2  # captions of all of COCO's photos take 15 MB

RESULTS_REMEDY = "expected COCO's results format (a list of objects with image_id and caption)"
REFERENCES_REMEDY = (
    "expected COCO's annotations (annotations with image_id and caption), or Karpathy's format "
    "(images with sentences)"
)
NAMES_REMEDY = (
    "expected COCO's annotations (images with id and file_name), or Karpathy's format (images with "
    "filename), to find the photos"
)


def read_results(path: str | Path) -> dict[int | str, str]:
    """One caption per image, by image id, from a file in COCO's results format.

    Raises:
        InputError: the file is missing or malformed, has no captions, or two of one image.
    """
    entries = read_json(path, MAX_RESULTS_BYTES)
    if not isinstance(entries, list):
        raise InputError(f"{path}: not a list; {RESULTS_REMEDY}")
    get = partial(field, source=path, remedy=RESULTS_REMEDY)
    captions: dict[int | str, str] = {}
    for entry in entries:
        image = get(entry, "image_id", int, str)
        if image in captions:
            raise InputError(f"{path}: image {short(image)} has two captions; leave one of them")
        captions[image] = get(entry, "caption", str)
    if not captions:
        raise InputError(f"{path}: no captions; {RESULTS_REMEDY}")
    return captions


def read_references(path: str | Path) -> dict[int | str, tuple[str, ...]]:
    """The reference captions by image id, of all splits; empty ones are left out.

    The file holds COCO's annotations, or is in the format of Karpathy's ``dataset_coco.json``.

    Raises:
        InputError: the file is missing or malformed, or has no captions or too many of one image.
    """
    dataset = read_json(path)
    get = partial(field, source=path, remedy=REFERENCES_REMEDY)
    references: dict[int | str, list[str]] = defaultdict(list)
    if _is_karpathys(dataset):
        for entry in get(dataset, "images", list):
            references[karpathy.image_id(entry, get)] += karpathy.sentences(entry, get)
    else:
        for entry in get(dataset, "annotations", list):
            references[get(entry, "image_id", int, str)].append(get(entry, "caption", str))
    kept = {}
    for image, texts in references.items():
        if captions := tuple(filter(str.strip, texts)):
            kept[image] = captions
        if len(captions) > MOST_CAPTIONS:
            raise InputError(
                f"{path}: image {short(image)} has more than {MOST_CAPTIONS:,} captions; "
                "leave some out"
            )
    if not kept:
        raise InputError(f"{path}: no captions; {REFERENCES_REMEDY}")
    return kept


def with_ids_of(
    captions: Mapping[int | str, str], references: Collection[int | str], source: str | Path
) -> dict[int | str, str]:
    """The captions by the ids of the references, also where one file writes 12 and the other "12".

    Raises:
        InputError: two captions are of one image; the message names `source`, their file.
    """
    find = id_finder(references)
    found: dict[int | str, str] = {}
    for image, caption in captions.items():
        known = find(image)
        known = image if known is None else known
        if known in found:
            raise InputError(f"{source}: image {short(image)} has two captions; leave one of them")
        found[known] = caption
    return found


def named_photos(
    references: str | Path, folder: str | Path, images: Iterable[int | str]
) -> dict[int | str, Path]:
    """The photo of each image, in a folder.

    Args:
        references: a JSON file for `read_references`, which names the photo of each image, or
            Flickr8k's text files, where an image's id is the name of its photo.
        folder: of the photos, or of the folders that the file names, such as val2014.
        images: their ids in the results or ratings.

    Raises:
        InputError: the folder is missing, or the file is malformed or lacks an image.
    """
    if not Path(folder).is_dir():
        raise InputError(f"{folder}: no such folder; give the folder of the photos")
    if Path(references).is_dir() or Path(references).suffix.lower() == ".txt":
        names = {str(i): str(i) if "." in str(i) else f"{i}.jpg" for i in images}
    else:
        dataset = read_json(references)
        get = partial(field, source=references, remedy=NAMES_REMEDY)
        names = {}
        for entry in get(dataset, "images", list):
            if _is_karpathys(dataset):
                image, name = karpathy.image_id(entry, get), karpathy.photo_name(entry, get)
            else:
                image, name = get(entry, "id", int, str), get(entry, "file_name", str)
            names[str(image)] = name
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


def _is_karpathys(dataset: Any) -> bool:
    return isinstance(dataset, dict) and "annotations" not in dataset
