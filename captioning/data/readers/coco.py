"""COCO's format: captions_*.json or other names, and instances_*.json for boxes and masks."""

from collections import defaultdict
from functools import cached_property, partial
from itertools import product
from pathlib import Path
from typing import NamedTuple

from captioning.data.readers import dataset_files as files
from captioning.data.readers.reader import (
    Contents,
    Problem,
    Reader,
    in_order,
    split_in,
    split_name,
)
from captioning.data.records import ImageObject, Record, id_finder
from captioning.errors import InputError
from captioning.numbers import ShareBelowOne, Year
from captioning.untrusted import field, read_json, short

CAPTIONS_REMEDY = "expected COCO's captions format (images with id, annotations with caption)"
INSTANCES_REMEDY = (
    "expected COCO's instances format (annotations with bbox and category_id); correct or remove "
    "the file (in a configuration, objects: false of the reader leaves boxes out)"
)

MAX_PIXELS = 1_000_000  # of a box's edges; no photo that can be decoded has a longer side


class Release(NamedTuple):
    """The file of a split."""

    file: Path
    name: str  # such as train2017, which names the folder of the images too
    split: str | None  # whose folders hold the images; None if the file is of no split


class Coco(Reader):
    """A data set in COCO's format.

    The captions of a split are in ``captions_<split><year>.json`` and its images in a folder
    ``<split><year>``. Records have objects if there is an ``instances_<split><year>.json``.
    A folder with several releases of one split names them in full (train2014, train2017).

    Where no file has such a name, all JSON files in this format are read, such as those of NoCaps
    and VizWiz. A word such as val in a file's name is its split; a hash of the image ids divides a
    single file without such a word into train and val. VizWiz' captions that are marked as rejected
    or precanned are left out, as its own evaluation does.

    Args:
        root: the folder of the data set, or its one JSON file.
        images: folder of the images, or of one folder per split; by default ``<split><year>`` or
            ``images`` below `root`.
        annotations: folder of the JSON files; by default ``annotations`` below `root`.
        year: the release to read if the folder has several, such as 2017.
        objects: whether to read boxes and masks, which take gigabytes of memory for all of COCO.
        val_fraction: share of the images for validation if the data set has no splits.
    """

    def __init__(
        self,
        root: str | Path,
        images: str | Path | None = None,
        annotations: str | Path | None = None,
        year: Year | None = None,
        objects: bool = True,
        val_fraction: ShareBelowOne | None = None,
    ) -> None:
        super().__init__(root, images, val_fraction)
        self.annotations = self.root / "annotations" if annotations is None else Path(annotations)
        self.searched = self.root if annotations is None else self.annotations
        self.year = year
        self.objects = objects

    @classmethod
    def recognises(cls, root: Path) -> bool:
        """Whether ``annotations/captions_*.json`` is there."""
        return any((root / "annotations").glob("captions_*.json"))

    @classmethod
    def resembles(cls, root: Path) -> bool:
        """Whether a JSON file has images and annotations with captions."""
        return any(map(_has_captions, files.json_files(root)))

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that have a file; train and val if the one file is of no split."""
        return in_order(self._by_hash or self._releases)

    @cached_property
    def _releases(self) -> dict[str, Release]:
        """The file of each split."""
        pattern = "captions_*.json" if self.year is None else f"captions_*{self.year}.json"
        found: dict[str, list[Release]] = defaultdict(list)
        for file in sorted(self.annotations.glob(pattern)):
            name = file.stem.removeprefix("captions_")
            split = split_name(name.rstrip("0123456789") or name)
            found[split].append(Release(file, name, split))
        if not found and self.year is None:
            for file in filter(_has_captions, files.json_files(self.searched)):
                part = split_in(file.stem)
                found[part or file.stem].append(Release(file, file.stem, part))
        if not found:
            raise InputError(f"{self.annotations}: no {pattern} here; give the folder that has it")
        return {
            split if len(releases) == 1 else release.name: release
            for split, releases in found.items()
            for release in releases
        }

    @cached_property
    def _by_hash(self) -> dict[str, Contents]:
        """The contents of train and val, if there is one file of no split; else nothing."""
        release, *others = self._releases.values()
        if others or release.split is not None:
            return {}
        contents = self._contents(release)
        parts = self._divided(contents.records) or {"train": []}
        return {
            split: Contents(records, contents.problems if split == "train" else [])
            for split, records in parts.items()
        }

    def _load(self, split: str) -> Contents:
        return self._by_hash.get(split) or self._contents(self._releases[split])

    def _contents(self, release: Release) -> Contents:
        file = release.file
        get = partial(field, source=file, remedy=CAPTIONS_REMEDY)
        dataset = read_json(file)
        names: dict[int | str, str] = {}
        problems = []
        for entry in get(dataset, "images", list):
            image_id = get(entry, "id", int, str)
            if image_id in names:
                problems.append(Problem("image ids used twice", f"{image_id} in {file.name}"))
            names[image_id] = get(entry, "file_name", str)
        find = id_finder(names)
        captions: dict[int | str, list[str]] = {image_id: [] for image_id in names}
        for entry in get(dataset, "annotations", list):
            image_id = get(entry, "image_id", int, str)
            caption = get(entry, "caption", str)
            known = find(image_id)
            if known is None:
                name = f"image id {image_id} in {file.name}"
                problems.append(Problem("captions of images that are not listed", name))
            elif not (entry.get("is_rejected") or entry.get("is_precanned")):
                captions[known].append(caption)
        paths = files.find_images(
            names.values(),
            self._folders(release),
            file,
            release.split,
            as_written=self.captions_only,
        )
        instances = file.with_name(f"instances_{release.name}.json")
        objects = _objects(instances) if self.objects and instances.exists() else {}
        found: dict[int | str | None, tuple[ImageObject, ...]] = {
            find(image_id): its for image_id, its in objects.items()
        }
        records = [
            Record(path, image_id, tuple(captions[image_id]), found.get(image_id, ()))
            for image_id, path in zip(names, paths, strict=True)
        ]
        return Contents(records, problems)

    def _folders(self, release: Release) -> list[Path]:
        """Where the images of a split may be."""
        root = self.root.parent if self.root.is_file() else self.root
        bases = [root, root / "images"] if self.images is None else [self.images]
        parts = dict.fromkeys(filter(None, (release.name, release.split)))
        folders = [base / part for base, part in product(bases, parts)]
        if release.split is not None:
            folders += files.folders_of(release.split, bases)
        return [*folders, *files.photo_folders(*reversed(bases))]


def _has_captions(file: Path) -> bool:
    return files.has_keys(file, "images", "annotations", "caption")


def _objects(file: Path) -> dict[int | str, tuple[ImageObject, ...]]:
    """The objects of each image id."""
    get = partial(field, source=file, remedy=INSTANCES_REMEDY)
    dataset = read_json(file)
    categories = {
        get(entry, "id", int): get(entry, "name", str) for entry in get(dataset, "categories", list)
    }
    objects: dict[int | str, list[ImageObject]] = defaultdict(list)
    for entry in get(dataset, "annotations", list):
        box = get(entry, "bbox", list)
        # Comparing refuses NaN, and a number of 400 digits has no float.
        if len(box) != 4 or not all(
            isinstance(edge, int | float) and abs(edge) <= MAX_PIXELS for edge in box
        ):
            raise InputError(
                f"{file}: bbox {short(box)} is not left, top, width, height in pixels; "
                f"{INSTANCES_REMEDY}"
            )
        category = get(entry, "category_id", int)
        if category not in categories:
            raise InputError(f"{file}: category_id {category} is not listed; add it to categories")
        left, top, width, height = map(float, box)
        found = ImageObject(
            categories[category], (left, top, width, height), entry.get("segmentation")
        )
        objects[get(entry, "image_id", int, str)].append(found)
    return {image_id: tuple(found) for image_id, found in objects.items()}
