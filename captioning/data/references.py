"""Reference captions from every format that readers know, without looking for photos."""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from captioning.data.images import IMAGE_SUFFIXES
from captioning.data.readers import CaptionTable, Reader, karpathy, reader_for
from captioning.data.readers.flickr8k import is_numbered, numbered_captions
from captioning.data.readers.rows import is_photo
from captioning.data.records import MOST_CAPTIONS, id_finder
from captioning.errors import InputError, UsageError
from captioning.untrusted import field, read_json, short

REMEDY = (
    "expected COCO's annotations (annotations with image_id and caption), Karpathy's format "
    "(images with sentences), lines as in Flickr8k.token.txt, a table of file names and captions, "
    "or a data set's folder"
)


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
    """The reference captions of a file or of a data set's folder, of all splits by default.

    A file holds COCO's annotations, Karpathy's format, lines as in ``Flickr8k.token.txt``, or a
    table that `captioning.data.readers.CaptionTable` reads. Photos may be missing, except where
    their captions lie beside them or in them (`Sidecar`, `PhotoShards`).

    Raises:
        InputError: the file is missing, malformed or in an unknown format, has no captions or too
            many of one image, or an image is in two splits.
        UsageError: a split is named, but the file has none.
    """
    path = Path(path)
    if not path.exists():
        raise InputError(f"{path}: no such file; check the path")
    if is_numbered(path):
        if split is not None:
            raise UsageError(f"--split {split}: {path} has no splits; give its folder")
        return _of_numbered(path)
    if split is None and path.suffix.lower() == ".json" and not path.is_dir():
        dataset = read_json(path)
        if is_coco(dataset) or is_karpathys(dataset) or not CaptionTable.resembles(path):
            return _of_json(path, dataset)
    return _of_reader(reader_for(path, objects=False, captions_only=True), split)


def is_coco(dataset: Any) -> bool:
    """Whether the value of a JSON file is in COCO's format."""
    return isinstance(dataset, dict) and "annotations" in dataset


def is_karpathys(dataset: Any) -> bool:
    """Whether the value of a JSON file is in Karpathy's format."""
    return isinstance(dataset, dict) and "images" in dataset and not is_coco(dataset)


def with_ids_of(
    captions: Mapping[int | str, str],
    references: Collection[int | str],
    source: str | Path,
    photos: Mapping[int | str, str] | None = None,
) -> dict[int | str, str]:
    """The captions by the ids of the references; others keep theirs.

    An id matches where one file writes 12 and the other "12", and a photo's path matches its image
    by its file name; see `image_finder`.

    Raises:
        InputError: two captions are of one image; the message names `source`, their file.
    """
    find = image_finder(references, photos or {})
    found: dict[int | str, str] = {}
    for image, caption in captions.items():
        known = find(image)
        known = image if known is None else known
        if known in found:
            raise InputError(f"{source}: image {short(image)} has two captions; leave one of them")
        found[known] = caption
    return found


def image_finder(
    images: Collection[int | str], photos: Mapping[int | str, str]
) -> Callable[[int | str], int | str | None]:
    """Finds an image by its id, or by the path or name of its photo; None unless exactly one fits.

    Suffixes of photos and folders may differ. Of several photos of one name, the one with the
    longest common path counts.

    Args:
        images: their ids.
        photos: the file names of their photos, as far as they are known.
    """
    by_id = id_finder(images)
    by_name: dict[str, list[int | str]] = defaultdict(list)
    for image, name in photos.items():
        by_name[_stem(name)].append(image)
    # The ids themselves may be file names, whose suffix others leave out.
    stems = {_stem(str(image)): image for image in images if is_photo(image)}
    by_stem = id_finder(stems) if len(stems) == len(images) else lambda sought: None

    def find(sought: int | str) -> int | str | None:
        known = by_id(sought)
        if known is not None:
            return known
        if not is_photo(sought):
            stem = by_stem(sought)
            return None if stem is None else stems[str(stem)]
        named = by_name.get(_stem(str(sought)), ())
        lengths = [_common(str(sought), photos[image]) for image in named]
        longest = max(lengths, default=0)
        best = [i for i, length in zip(named, lengths, strict=True) if length == longest]
        return best[0] if len(best) == 1 else None

    return find


def _stem(name: str) -> str:
    """The last part of a path, without the suffix of a photo."""
    path = PurePosixPath(name.replace("\\", "/"))
    return path.stem if path.suffix.lower() in IMAGE_SUFFIXES else path.name


def _common(one: str, other: str) -> int:
    """The number of last parts that two paths share."""
    parts = (reversed(PurePosixPath(path.replace("\\", "/")).parts) for path in (one, other))
    count = 0
    for first, second in zip(*parts, strict=False):
        if first != second:
            break
        count += 1
    return count


def _of_reader(reader: Reader, split: str | None = None) -> References:
    captions: dict[int | str, tuple[str, ...]] = {}
    photos: dict[int | str, str] = {}
    for name in reader.splits if split is None else (split,):
        for record in reader.contents(name).records if split is None else reader.read(name):
            image = record.image_id
            if image in captions:
                raise InputError(
                    f"{reader.root}: image {short(image)} is in two splits; name one by --split"
                )
            captions[image], photos[image] = record.captions, str(record.image)
    if not captions:
        raise InputError(f"{reader.root}: no captions; {REMEDY}")
    return References(captions, photos)


def _of_numbered(path: Path) -> References:
    captions: dict[int | str, list[str]] = defaultdict(list)
    photos: dict[int | str, str] = {}
    for numbered, caption in numbered_captions(path):
        name = numbered.rpartition("#")[0]
        captions[_stem(name)].append(caption)
        photos[_stem(name)] = name
    return References(_kept(path, captions), photos)


def _of_json(path: Path, dataset: Any) -> References:
    get = partial(field, source=path, remedy=REMEDY)
    captions: dict[int | str, list[str]] = defaultdict(list)
    photos: dict[int | str, str] = {}
    if is_coco(dataset):
        for entry in get(dataset, "annotations", list):
            captions[get(entry, "image_id", int, str)].append(get(entry, "caption", str))
        # Images and their names may be missing, since ids are enough.
        named = dataset.get("images")
        for entry in named if isinstance(named, list) else ():
            if isinstance(entry, dict) and isinstance(entry.get("file_name"), str):
                photos[get(entry, "id", int, str)] = entry["file_name"]
    else:
        for entry in get(dataset, "images", list):
            image = karpathy.image_id(entry, get)
            captions[image] += karpathy.sentences(entry, get)
            if "filename" in entry:
                photos[image] = karpathy.photo_name(entry, get)
    return References(_kept(path, captions), photos)


def _kept(path: Path, captions: Mapping[int | str, list[str]]) -> dict[int | str, tuple[str, ...]]:
    """The captions that are not empty."""
    kept = {}
    for image, texts in captions.items():
        if found := tuple(filter(str.strip, texts)):
            kept[image] = found
        if len(found) > MOST_CAPTIONS:
            raise InputError(
                f"{path}: image {short(image)} has more than {MOST_CAPTIONS:,} captions; "
                "leave some out"
            )
    if not kept:
        raise InputError(f"{path}: no captions; {REMEDY}")
    return kept
