"""Splits photos into train and val where a data set does not."""

import hashlib
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from captioning.data.images import HEIF_SUFFIXES, JPEG_SUFFIXES
from captioning.data.photo_files import photo_hash, photo_size
from captioning.data.records import Record
from captioning.data.splits import split_in
from captioning.errors import InputError

DEFAULT_VAL_FRACTION = 0.2
"""Share of the photos for validation if a data set has no split val."""

COPY = re.compile(r"(?i)( ?\(\d+\)|(?<![ _-])[ _-]+copy( ?\(?\d+\)?)?)(?=(\.\w+)?$)")
"""What file managers add to the name of a copy: "01 (1).jpg", "01 - Copy.jpg"."""

CAMERA_SUFFIXES = JPEG_SUFFIXES | HEIF_SUFFIXES
"""Formats of one exposure."""

MAX_COPIES = 3
"""Maximum number of copies of a photo, by name; more, as "download (4).jpg", are a series."""


def with_validation(
    splits: Mapping[str, Sequence[Record]], val_fraction: float | None, folder: Path = Path()
) -> dict[str, list[Record]]:
    """Split the records of no split, which are under "", and without val also those of train.

    A hash of the id decides, so images keep their split when others are added. Copies of an image
    come into its split.

    Args:
        splits: the records by split.
        val_fraction: share of the photos for validation; `DEFAULT_VAL_FRACTION` if None. Unless it
            is 0, both train and val get a photo.
        folder: of the photos that have relative paths.
    """
    divided = defaultdict(list, {split: list(records) for split, records in splits.items()})
    undivided = divided.pop("", [])
    if "val" not in map(split_in, divided) and divided.get("train"):
        undivided += divided.pop("train")
    if not undivided:
        return dict(divided)
    if val_fraction is None:
        val_fraction = DEFAULT_VAL_FRACTION
    originals: dict[str, str] = {}
    if val_fraction:
        originals = _originals({str(r.image_id): folder / r.image for r in undivided})
    ids = sorted(set(originals.values()), key=_hash_place)
    val_ids = {image_id for image_id in ids if _hash_place(image_id) / 2**64 < val_fraction}
    val_ids = val_ids.union(ids[:1]).difference(ids[-1:])
    for record in undivided:
        is_val = originals.get(str(record.image_id)) in val_ids
        divided["val" if is_val else "train"].append(record)
    return dict(divided)


def _hash_place(image_id: str) -> int:
    # Python's own hash differs from run to run.
    digest = hashlib.sha256(image_id.encode(errors="surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big")


def _originals(photos: dict[str, Path]) -> dict[str, str]:
    """The id of the photo that each is a copy of, or its own id.

    Copies have the name of a copy, the same bytes, or are files of one exposure, such as IMG_1.HEIC
    and IMG_1.JPG.
    """
    first_exposures = _first_exposures(photos)
    originals = {
        image_id: first_exposures[name] for image_id, name in _originals_by_name(photos).items()
    }
    first_by_content = _first_by_content(photos, originals)
    for image_id, original in originals.items():
        originals[image_id] = first_by_content.get(original, original)
    if len(set(originals.values())) == 1:  # with nothing to validate on
        return {image_id: image_id for image_id in photos}
    return originals


def _first_exposures(image_ids: Iterable[str]) -> dict[str, str]:
    """The first id of the files of each photo's exposure."""
    exposures: dict[str, list[str]] = defaultdict(list)
    for image_id in image_ids:
        stem, suffix = os.path.splitext(image_id.lower())  # noqa: PTH122 - an id may be no path
        exposures[stem if suffix in CAMERA_SUFFIXES else image_id].append(image_id)
    first_exposures: dict[str, str] = {}
    for exposure in exposures.values():
        first_exposures |= dict.fromkeys(exposure, min(exposure))
    return first_exposures


def _originals_by_name(photos: dict[str, Path]) -> dict[str, str]:
    by_name: dict[str, list[str]] = defaultdict(list)
    for image_id in photos:
        by_name[COPY.sub("", image_id)].append(image_id)
    originals = {image_id: image_id for image_id in photos}
    for name, image_ids in by_name.items():
        if name in photos and len(image_ids) <= 1 + MAX_COPIES:
            originals |= dict.fromkeys(image_ids, name)
    return originals


def _first_by_content(photos: dict[str, Path], originals: dict[str, str]) -> dict[str, str]:
    """By the original of each photo of equal bytes, the one with the shortest id."""
    by_size: dict[int | None, list[str]] = defaultdict(list)
    for image_id, photo in photos.items():
        by_size[photo_size(photo)].append(image_id)
    by_size.pop(None, None)
    by_hash: dict[str | None, list[str]] = defaultdict(list)
    for image_ids in by_size.values():
        if len(image_ids) > 1:
            for image_id in image_ids:
                with suppress(InputError):  # whoever reads the photo says why it cannot be read
                    by_hash[photo_hash(photos[image_id])].append(originals[image_id])
    first: dict[str, str] = {}
    for image_ids in by_hash.values():
        shortest = min(image_ids, key=lambda image_id: (len(image_id), image_id))
        first |= dict.fromkeys(image_ids, shortest)
    return first
