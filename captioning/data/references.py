"""Reference captions from every format that readers know, without looking for photos."""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from captioning.data.images import IMAGE_SUFFIXES
from captioning.data.readers import CaptionTable, Problem, reader_for
from captioning.data.readers.coco import captions_in
from captioning.data.readers.dataset_files import common_end
from captioning.data.readers.flickr8k import is_numbered, numbered_captions
from captioning.data.readers.karpathy import entries_in
from captioning.data.readers.rows import is_photo
from captioning.data.records import id_finder
from captioning.errors import InputError
from captioning.untrusted import read_json

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
        InputError: the file is missing, malformed or in an unknown format, has no captions, has no
            splits though one is named, or an image is in two splits.
    """
    path, dataset = Path(path), None
    if not path.exists():
        raise InputError(f"{path}: no such file; check the path")
    is_text = is_numbered(path)
    if split is not None and is_text:
        raise InputError(f"--split {split}: {path} has no splits; give its folder")
    if split is None and path.suffix.lower() == ".json" and not path.is_dir():
        dataset = read_json(path)
        if not isinstance(dataset, dict) or not {"annotations", "images"} & dataset.keys():
            dataset = {} if not CaptionTable.resembles(path) else None
    if is_text or dataset is not None:
        captions, photos = _of_file(path, dataset)
    else:
        captions, photos = _of_reader(path, split)
    kept = {image: tuple(filter(str.strip, texts)) for image, texts in captions.items()}
    kept = {image: texts for image, texts in kept.items() if texts}
    if not kept:
        raise InputError(f"{path}: no captions; {REMEDY}")
    return References(kept, photos)


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
            raise InputError(f"{source}: image {image!r} has two captions; leave one of them")
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
        parts = _parts(str(sought))
        lengths = [common_end(parts, _parts(photos[image])) for image in named]
        longest = max(lengths, default=0)
        best = [i for i, length in zip(named, lengths, strict=True) if length == longest]
        return best[0] if len(best) == 1 else None

    return find


def _parts(name: str) -> tuple[str, ...]:
    return PurePosixPath(name.replace("\\", "/")).parts


def _stem(name: str) -> str:
    """The last part of a path, without the suffix of a photo."""
    path = PurePosixPath(name.replace("\\", "/"))
    return path.stem if path.suffix.lower() in IMAGE_SUFFIXES else path.name


def _of_reader(
    path: Path, split: str | None
) -> tuple[dict[int | str, Sequence[str]], dict[int | str, str]]:
    """The captions and the photos of a data set of any layout."""
    reader = reader_for(path, objects=False, captions_only=True)
    captions: dict[int | str, Sequence[str]] = {}
    photos: dict[int | str, str] = {}
    for name in reader.splits if split is None else (split,):
        for record in reader.contents(name).records if split is None else reader.read(name):
            image = record.image_id
            if image in captions:
                raise InputError(f"{path}: image {image!r} is in two splits; name one by --split")
            captions[image], photos[image] = record.captions, str(record.image)
    return captions, photos


def _of_file(
    path: Path, dataset: Any
) -> tuple[dict[int | str, Sequence[str]], dict[int | str, str]]:
    """The same of one file: numbered lines, or JSON of which images and names may be missing."""
    captions: dict[int | str, list[str]] = defaultdict(list)
    photos: dict[int | str, str] = {}
    problems: list[Problem] = []
    if dataset is None:
        for name, caption in numbered_captions(path, problems):
            captions[_stem(name)].append(caption)
            photos[_stem(name)] = name
    elif "annotations" in dataset:
        for image, caption in captions_in(path, dataset, problems):
            captions[image].append(caption)
        named = dataset.get("images")
        for entry in named if isinstance(named, list) else ():
            if isinstance(entry, dict) and isinstance(entry.get("id"), int | str):
                photos[entry["id"]] = str(entry.get("file_name", ""))
    elif "images" in dataset:
        for image, photo, texts, _ in entries_in(path, dataset, problems):
            captions[image] += texts
            photos |= {image: photo} if photo else {}
    if problems:  # fewer references would change scores
        raise InputError(f"{problems[0].name}; {REMEDY}")
    return dict(captions), photos
