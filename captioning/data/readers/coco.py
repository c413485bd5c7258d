"""COCO's format: captions_*.json or other names, and instances_*.json for boxes and masks."""

from collections import defaultdict
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from captioning.data.readers import dataset_files as files
from captioning.data.readers.reader import (
    Contents,
    Problem,
    Reader,
    field,
    in_order,
    numbered,
    parsed,
    split_in,
    split_name,
)
from captioning.data.records import ImageObject, Record, id_finder
from captioning.errors import InputError, reading, shown
from captioning.untrusted import read_json


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
        year: int | None = None,
        objects: bool = True,
        val_fraction: float | None = None,
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
        file, problems = release.file, list[Problem]()
        dataset = read_json(file)
        with reading(f"{file}: not COCO's captions"):
            images = field(dataset, "images", list)
        names: dict[int | str, str] = {}
        for _, (image_id, name) in parsed(numbered(f"{file}: image", images), _image, problems):
            if image_id in names:
                problems.append(Problem("image ids used twice", f"{image_id} in {file.name}"))
            names[image_id] = name
        find = id_finder(names)
        captions: dict[int | str, list[str]] = {image_id: [] for image_id in names}
        for image_id, caption in captions_in(file, dataset, problems):
            known = find(image_id)
            if known is None:
                place = f"image id {image_id} in {file.name}"
                problems.append(Problem("captions of images that are not listed", place))
            else:
                captions[known].append(caption)
        paths = files.find_images(
            names.values(),
            self._folders(release),
            file,
            release.split,
            as_written=self.captions_only,
        )
        instances = file.with_name(f"instances_{release.name}.json")
        objects: dict[int | str | None, list[ImageObject]] = defaultdict(list)
        if self.objects and instances.exists():
            for image_id, found in _objects(instances, problems):
                objects[find(image_id)].append(found)
        records = [
            Record(path, image_id, tuple(captions[image_id]), tuple(objects.get(image_id, ())))
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


def captions_in(file: Path, dataset: Any, problems: list[Problem]) -> list[tuple[int | str, str]]:
    """Each caption of a file in COCO's format with the id of its image.

    Raises:
        InputError: the file has no annotations.
    """
    with reading(f"{file}: not COCO's captions"):
        rows = numbered(f"{file}: annotation", field(dataset, "annotations", list))
    return [pair for _, pair in parsed(rows, _caption, problems) if pair is not None]


def _has_captions(file: Path) -> bool:
    return files.has_keys(file, "images", "annotations", "caption")


def _image(entry: Any) -> tuple[int | str, str]:
    return field(entry, "id", int, str), field(entry, "file_name", str)


def _caption(entry: Any) -> tuple[int | str, str] | None:
    found = field(entry, "image_id", int, str), field(entry, "caption", str)
    return None if entry.get("is_rejected") or entry.get("is_precanned") else found


def _objects(file: Path, problems: list[Problem]) -> list[tuple[int | str, ImageObject]]:
    """Each object with the id of its image."""
    dataset = read_json(file)
    with reading(f"{file}: not COCO's instances (objects: false of the reader leaves boxes out)"):
        categories, annotations = (
            field(dataset, key, list) for key in ("categories", "annotations")
        )
        names = {field(entry, "id", int): field(entry, "name", str) for entry in categories}

    def parse(entry: Any) -> tuple[int | str, ImageObject]:
        box, category = field(entry, "bbox", list), field(entry, "category_id", int)
        # Comparing refuses NaN, and a number of 400 digits has no float.
        if len(box) != 4 or not all(isinstance(x, int | float) and abs(x) <= 1e6 for x in box):
            raise ValueError(f"bbox {shown(box)} is not left, top, width, height in pixels")
        if category not in names:
            raise ValueError(f"category_id {category} is not listed")
        left, top, width, height = map(float, box)
        mask = entry.get("segmentation")
        found = ImageObject(names[category], (left, top, width, height), mask)
        return field(entry, "image_id", int, str), found

    rows = numbered(f"{file}: annotation", annotations)
    return [pair for _, pair in parsed(rows, parse, problems)]
