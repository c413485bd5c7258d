"""Captions in files and folders: people's references, and the captions of models to score."""

import json
import os
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath
from typing import Any

from captioning.data.images import IMAGE_SUFFIXES
from captioning.data.photo_files import photo_size
from captioning.data.readers import CaptionTable, Problem, reader_for
from captioning.data.readers.data_set import MALFORMED, UNREADABLE
from captioning.data.readers.dataset_files import id_finder, path_ends
from captioning.data.readers.fields import Entry, field, numbered, parse_entries, shown_names
from captioning.data.readers.rows import JSON_LINES, is_photo_name, parse_json_lines, read_table
from captioning.errors import InputError, reading
from captioning.files import read_text
from captioning.progress_bar import stage

REMEDY = (
    "expected COCO's results format (a list of objects with image_id and caption), a table, or "
    "lines as of `captioning caption --json`"
)

CAPTIONS, SHARDS = "captions.json", "captions-*.jsonl"

IMAGE_KEYS = ("image", "image_id", "file_name")
"""What an object may call its image."""

Captions = dict[int | str, str]
"""One caption by image id or path of the photo."""

ImageCaption = tuple[int | str, str]
"""An image id or path of the photo, and its caption."""


@dataclass(frozen=True)
class References:
    """Reference captions of images.

    Attributes:
        captions: by image id; none of them is empty.
        photos: the file name of each image's photo by image id, where the source says it.
        splits: the splits of the images; those of one are in the order of the source.
    """

    captions: dict[int | str, tuple[str, ...]]
    photos: dict[int | str, str]
    splits: tuple[str, ...] = ()


def read_references(path: str | Path, split: str | None = None) -> References:
    """The reference captions of a file or folder that `reader_for` knows, of all splits by default.

    Photos may be missing, except where their captions lie beside them. An image in two
    splits is an error unless one of these is named.
    """
    reader = reader_for(path, objects=False)
    reader.captions_only = True
    if split is None:
        reader.val_fraction = 0.0  # keeps the order of images that have no split
    with stage("reading the captions"):
        data_set = reader.read()
    splits = list(data_set.splits)
    if split is not None:
        data_set.records(split)  # raises if there are none
        splits = [name for name in splits if name == data_set.find_split(split)]
    for problem in data_set.problems:
        if problem.kind in (MALFORMED, UNREADABLE) and problem.split in (*splits, None):
            raise InputError(f"{problem.name}; fewer references would change scores")
    captions: dict[int | str, tuple[str, ...]] = {}
    photos: dict[int | str, str] = {}
    for name in splits:
        for record in data_set.splits[name]:
            image_id = record.image_id
            if image_id in captions:
                raise InputError(
                    f"{path}: image {image_id!r} is in two splits; name one by --split"
                )
            captions[image_id] = record.captions
            if record.image.name:
                photos[image_id] = str(record.image)
    if not captions:
        raise InputError(f"{path}: no captions; give a file or a folder that has some")
    return References(captions, photos, tuple(name for name in splits if data_set.splits[name]))


def image_finder(
    images: Collection[int | str], photos: Mapping[int | str, str]
) -> Callable[[int | str], int | str | None]:
    """Finds an image by its id, or by the path or name of its photo; None unless exactly one fits.

    Suffixes of photos and folders may differ. Of several photos of one name, the one with the
    longest common path counts. `photos` are names of photos by image id.
    """
    find_id = id_finder(images)
    images_by_end: dict[tuple[str, ...], list[int | str]] = defaultdict(list)
    for image_id, photo in photos.items():
        for end in path_ends(_without_suffix(photo)):
            images_by_end[end].append(image_id)
    # The ids themselves may be file names, whose suffix others leave out.
    stems: dict[Any, int | str] = {}
    for image_id in filter(is_photo_name, images):
        stems[PureWindowsPath(_without_suffix(str(image_id))).name] = image_id
    find_stem = id_finder(stems if len(stems) == len(images) else ())

    def find(image: int | str) -> int | str | None:
        image_id = find_id(image)
        if image_id is not None:
            return image_id
        if not is_photo_name(image):
            return stems.get(find_stem(image))
        for end in path_ends(_without_suffix(str(image))):
            if end in images_by_end:
                image_ids = images_by_end[end]
                return image_ids[0] if len(image_ids) == 1 else None
        return None

    return find


def _without_suffix(photo: str) -> str:
    """The name without the suffix of a photo."""
    path = Path(photo)
    return str(path.with_suffix("")) if path.suffix.lower() in IMAGE_SUFFIXES else photo


def read_results(
    path: str | Path, caption_column: str | None = None, references: References | None = None
) -> Captions:
    """One caption per image, by image id or path of the photo, except where there is an error.

    Args:
        path: a file in COCO's results format, a CSV or TSV table, lines of JSON as
            ``captioning caption`` writes them, the folder of its shards, or a folder of
            ``captioning evaluate``; with `references`, also a text file of one caption a line.
        caption_column: the column of the captions in a table, if it is not called by a usual name.
        references: the references, whose order of images is that of the lines.
    """
    path = Path(path)
    if references is not None and path.suffix.lower() == ".txt" and not _is_table(path):
        return _caption_lines(path, references)
    files = [path]
    if path.is_dir():
        files = sorted(path.glob(SHARDS)) or [path / CAPTIONS]
    captions: list[ImageCaption] = []
    for file in files:
        captions_of_file, problems = _read_captions(file, caption_column)
        if problems:  # fewer captions would change scores
            raise InputError(f"{problems[0].name}; {REMEDY}")
        captions += captions_of_file
    if not captions:
        raise InputError(f"{path}: no captions; {REMEDY}")
    return _by_image(captions, path)


def _is_table(file: Path) -> bool:
    """Whether it is a table; captions, which a text file may have alone, have no tabs."""
    suffix = file.suffix.lower()
    is_text = suffix == ".txt" and ("\t" in read_text(file) or CaptionTable.resembles(file))
    return suffix in (".csv", ".tsv") or is_text


def _caption_lines(file: Path, references: References) -> Captions:
    """The captions of a file that has one a line, in the order of the references' images."""
    if len(references.splits) > 1:
        raise InputError(
            f"{file}: one caption a line, but references of {shown_names(references.splits)}; "
            "name one by --split"
        )
    lines = read_text(file).removesuffix("\n").split("\n")
    if len(lines) != len(references.captions):
        raise InputError(
            f"{file}: {len(lines):,} lines, but references of {len(references.captions):,} images; "
            "give one caption a line, in the order of the references' images"
        )
    return dict(zip(references.captions, map(str.strip, lines), strict=True))


def _by_image(captions: Iterable[ImageCaption], path: str | Path) -> Captions:
    captions_by_image: Captions = {}
    for image, caption in captions:
        if image in captions_by_image:
            raise InputError(f"{path}: image {image!r} has two captions; leave one of them")
        captions_by_image[image] = caption
    return captions_by_image


def _read_captions(
    file: Path, caption_column: str | None
) -> tuple[list[ImageCaption], list[Problem]]:
    """The captions of a file; photos with an error in place of a caption are left out."""
    if _is_table(file):
        table = read_table(file, caption_column)
        captions: list[ImageCaption] = []
        for row in table.rows:
            captions += [(row.name, caption) for caption in row.captions]
        return captions, table.problems
    problems: list[Problem] = []
    entries: Iterable[Entry]
    text = read_text(file)
    if file.suffix.lower() in JSON_LINES or text.lstrip().startswith("{"):
        entries, problems = parse_json_lines(file, text)
    else:
        with reading(file):
            content = json.loads(text)
        if not isinstance(content, list):
            raise InputError(f"{file}: not a list; {REMEDY}")
        entries = numbered(f"{file}: caption", content)
    captions_or_errors, malformed = parse_entries(entries, _parse_caption)
    return list(filter(None, captions_or_errors)), problems + malformed


def _parse_caption(entry: Any) -> ImageCaption | None:
    if isinstance(entry, dict) and "error" in entry:
        return None
    key = next(
        (key for key in IMAGE_KEYS if isinstance(entry, dict) and key in entry), IMAGE_KEYS[0]
    )
    return field(entry, key, int, str), field(entry, "caption", str)


def scored_captions(
    captions: Mapping[int | str, str], references: References, path: str | Path, source: str | Path
) -> Captions:
    """The captions of `read_results` by the ids of the references; see `image_finder`.

    Raises:
        InputError: an image has no reference, or two captions; the message names both files.
    """
    find = image_finder(references.captions, references.photos)
    image_ids = {image: find(image) for image in captions}
    unlisted = [image for image, image_id in image_ids.items() if image_id is None]
    if unlisted:
        raise InputError(
            f"{path}: {len(unlisted)} of {len(captions)} images have no caption in {source}, such "
            f"as {unlisted[0]!r}; give the references of the same images"
        )
    captions_by_id = [
        (image_id, captions[image]) for image, image_id in image_ids.items() if image_id is not None
    ]
    return _by_image(captions_by_id, path)


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
