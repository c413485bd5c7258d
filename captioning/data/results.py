"""Results and references in JSON files, without their photos."""

from collections import defaultdict
from pathlib import Path
from typing import Any

from captioning.data.readers.fields import field, short
from captioning.data.records import MOST_CAPTIONS
from captioning.errors import InputError
from captioning.untrusted import read_json

MAX_RESULTS_BYTES = 256 * 1024**2
"""The most bytes of a results file. Captions for all of COCO's 164,000 photos take 15 MB."""

RESULTS_REMEDY = "expected COCO's results format (a list of objects with image_id and caption)"
REFERENCES_REMEDY = (
    "expected COCO's annotations (annotations with image_id and caption), or Karpathy's format "
    "(images with sentences)"
)


def read_results(path: str | Path) -> dict[int | str, str]:
    """One caption per image, by image id, from a file in COCO's results format.

    Raises:
        InputError: the file is missing or malformed, has no captions, or two of one image.
    """
    entries = read_json(path, MAX_RESULTS_BYTES)
    if not isinstance(entries, list):
        raise InputError(f"{path}: not a list; {RESULTS_REMEDY}")
    captions: dict[int | str, str] = {}
    for entry in entries:
        image = field(entry, "image_id", int, str, source=path, remedy=RESULTS_REMEDY)
        if image in captions:
            raise InputError(f"{path}: image {short(image)} has two captions; leave one of them")
        captions[image] = field(entry, "caption", str, source=path, remedy=RESULTS_REMEDY)
    if not captions:
        raise InputError(f"{path}: no captions; {RESULTS_REMEDY}")
    return captions


def read_references(path: str | Path) -> dict[int | str, tuple[str, ...]]:
    """The reference captions by image id; empty ones are left out.

    Args:
        path: a file of COCO's annotations, or in the format of Karpathy's ``dataset_coco.json``
            (all splits are read).

    Raises:
        InputError: the file is missing or malformed, or has no captions or too many of one image.
    """
    dataset = read_json(path)
    is_karpathy = isinstance(dataset, dict) and "annotations" not in dataset
    pairs = (_karpathy if is_karpathy else _coco)(dataset, path)
    references: dict[int | str, list[str]] = defaultdict(list)
    for image, caption in pairs:
        if not caption.strip():
            continue
        references[image].append(caption)
        if len(references[image]) > MOST_CAPTIONS:
            name = f"image {short(image)}"
            raise InputError(
                f"{path}: {name} has more than {MOST_CAPTIONS:,} captions; leave some out"
            )
    if not references:
        raise InputError(f"{path}: no captions; {REFERENCES_REMEDY}")
    return {image: tuple(captions) for image, captions in references.items()}


def _coco(dataset: Any, path: str | Path) -> list[tuple[int | str, str]]:
    return [
        (_value(entry, "image_id", int, str, path=path), _value(entry, "caption", str, path=path))
        for entry in _value(dataset, "annotations", list, path=path)
    ]


def _karpathy(dataset: Any, path: str | Path) -> list[tuple[int | str, str]]:
    return [
        (
            _value(entry, "cocoid" if "cocoid" in entry else "imgid", int, str, path=path),
            _value(sentence, "raw", str, path=path),
        )
        for entry in _value(dataset, "images", list, path=path)
        for sentence in _value(entry, "sentences", list, path=path)
    ]


def _value(entry: Any, key: str, *types: type, path: str | Path) -> Any:
    return field(entry, key, *types, source=path, remedy=REFERENCES_REMEDY)
