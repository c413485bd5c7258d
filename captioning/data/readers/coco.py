"""The JSON formats of COCO (captions, boxes, masks) and of Karpathy's splits."""

from collections import defaultdict
from functools import cached_property
from pathlib import Path
from typing import Any

from captioning.data.readers import dataset_files as files
from captioning.data.readers.reader import (
    Contents,
    Problem,
    Reader,
    Row,
    field,
    listed,
    numbered,
    parsed,
)
from captioning.data.records import ImageObject, Record
from captioning.data.splits import in_order, split_in, split_name
from captioning.errors import InputError, reading, shown
from captioning.files import read_json

CAPTIONS = "captions_"
KEYS = ("annotations", "image_id", "caption")
KARPATHY_KEYS = ("images", "sentences", "raw")


class Coco(Reader):
    """A data set in COCO's format.

    The captions of a split are in ``captions_<split><year>.json`` and its images in a folder
    ``<split><year>``. Records have objects if there is an ``instances_<split><year>.json``.
    A folder with several releases of one split names them in full (train2014, train2017).

    Where no file has such a name, all JSON files in this format are read. A word such as val in a
    file's name is its split; a single file without such a word is divided into train and val, and
    so is that of train if val has none.
    VizWiz' captions that are marked as rejected or precanned are left out.

    Args:
        root: the folder of the data set, or its one JSON file.
        images: folder of the images, or of one folder per split; by default ``<split><year>`` or
            ``images`` below `root`.
        annotations: folder of the JSON files; by default ``annotations`` below `root`.
        year: the release to read if the folder has several, such as 2017.
        objects: whether to read boxes and masks, which take gigabytes of memory for all of COCO.
        val_fraction: see `Reader`.
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
        self.annotations = None if annotations is None else Path(annotations)
        self.year = year
        self.objects = objects

    @classmethod
    def recognises(cls, root: Path) -> bool:
        return any((root / "annotations").glob(f"{CAPTIONS}*.json"))

    @classmethod
    def resembles(cls, root: Path) -> bool:
        return bool(files.json_files(root, *KEYS))

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that have a file; val is a part of train if it has none."""
        return super().splits if "" in self._files else in_order(self._files)

    @cached_property
    def _files(self) -> dict[str, Path]:
        """The file of each split; under "", the one to divide into train and val."""
        folder, pattern = self.annotations, f"{CAPTIONS}*{self.year or ''}.json"
        its = sorted((folder or self.root / "annotations").glob(pattern))
        names = [file.stem.removeprefix(CAPTIONS) for file in its]
        splits = [split_name(name.rstrip("0123456789") or name) for name in names]
        if not its and self.year is None:
            its = files.json_files(folder or self.root, *KEYS)
            names = [file.stem for file in its]
            splits = [split_in(name) or name for name in names]
            if len(its) == 1 and split_in(names[0]) is None:
                return {"": its[0]}
        if not its:
            raise InputError(f"{folder or self.root}: no {pattern} here; give its folder")
        found = zip(splits, names, its, strict=True)
        files_by_split = {
            split if splits.count(split) == 1 else name: file for split, name, file in found
        }
        if "train" in files_by_split and "val" not in splits:  # with nothing to validate on
            files_by_split[""] = files_by_split.pop("train")
        return files_by_split

    def _read(self, problems: list[Problem]) -> dict[str, list[Record]]:
        return {split: self._of(split, problems) for split in self._files}

    def _load(self, split: str) -> Contents:
        if "" in self._files:
            return super()._load(split)
        problems: list[Problem] = []
        return Contents(self._of(split, problems), problems)

    def _of(self, split: str, problems: list[Problem]) -> list[Record]:
        file = self._files[split]
        dataset, release = read_json(file), file.stem.removeprefix(CAPTIONS)
        with reading(f"{file}: not COCO's captions"):
            rows = numbered(f"{file}: annotation", field(dataset, "annotations", list))
            dataset = {"images": []} | dataset if self.captions_only else dataset
            images = numbered(f"{file}: image", field(dataset, "images", list))
        names = dict(parsed(images, self._image, problems))
        find = files.id_finder(names)
        captions: dict[int | str, list[str]] = {image_id: [] for image_id in names}
        for image_id, caption in filter(None, parsed(rows, _caption, problems)):
            known = find(image_id)
            if known is not None or self.captions_only:
                captions.setdefault(image_id if known is None else known, []).append(caption)
            else:
                place = f"image id {image_id} in {file.name}"
                problems.append(Problem("captions of images that are not listed", place))
        objects: dict[int | str | None, list[ImageObject]] = defaultdict(list)
        instances = file.with_name(f"instances_{release}.json")
        if self.objects and instances.exists():
            for image_id, thing in _objects(instances, problems):
                objects[find(image_id)].append(thing)
        split = split_in(release) or split
        bases = [self.folder, self.folder / "images"] if self.images is None else [self.images]
        folders = [base / part for base in bases for part in (release, split) if part]
        folders += files.folders_of(split, bases) if split else []
        folders += files.photo_folders(*reversed(bases))
        photos = self._photos([names.get(each, "") for each in captions], file, folders, split)
        return [
            Record(photo, image_id, tuple(texts), tuple(objects[image_id]))
            for photo, (image_id, texts) in zip(photos, captions.items(), strict=True)
        ]

    def _image(self, entry: Any) -> tuple[int | str, str]:
        image_id = field(entry, "id", int, str)
        entry = {"file_name": ""} | entry if self.captions_only else entry
        return image_id, field(entry, "file_name", str)


class Karpathy(Reader):
    """A data set in the format of Karpathy's ``dataset_coco.json``; restval belongs to train.

    Args:
        root: the folder that holds the one ``dataset_*.json``, or the path of that file.
        images: folder of the images, or of the folders that the file names (train2014, ...); by
            default the folder of the file, or wherever they are below it.
    """

    @classmethod
    def recognises(cls, root: Path) -> bool:
        if root.is_file():
            return root.match("dataset*.json")
        return any(files.has_keys(file, *KARPATHY_KEYS) for file in root.glob("dataset_*.json"))

    @classmethod
    def resembles(cls, root: Path) -> bool:
        return bool(files.json_files(root, *KARPATHY_KEYS))

    def _read(self, problems: list[Problem]) -> dict[str, list[Record]]:
        found = files.json_files(self.root, *KARPATHY_KEYS) if self.root.is_dir() else [self.root]
        if len(found) != 1:
            held = listed(file.name for file in found)
            raise InputError(f"{self.root}: holds {held}; give the path of one dataset_*.json")
        [file] = found
        with reading(f"{file}: not Karpathy's format"):
            rows = numbered(f"{file}: image", field(read_json(file), "images", list))
        return self._records(parsed(rows, self._row, problems), file)

    def _row(self, image: Any) -> Row:
        captions = [field(each, "raw", str) for each in field(image, "sentences", list)]
        if self.captions_only:  # these may be missing
            image = {"filename": "", "split": ""} | image
        name = field(image, "filename", str)
        image_id = field(image, "cocoid" if "cocoid" in image else "imgid", int, str)
        photo = f"{field(image, 'filepath', str)}/{name}" if name and "filepath" in image else name
        return Row(photo, captions, split_name(field(image, "split", str)), image_id)


def _caption(entry: Any) -> tuple[int | str, str] | None:
    found = field(entry, "image_id", int, str), field(entry, "caption", str)
    return None if entry.get("is_rejected") or entry.get("is_precanned") else found


def _objects(file: Path, problems: list[Problem]) -> list[tuple[int | str, ImageObject]]:
    dataset = read_json(file)
    with reading(f"{file}: not COCO's instances (objects: false of the reader leaves boxes out)"):
        annotations = field(dataset, "annotations", list)
        categories = field(dataset, "categories", list)
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

    return list(parsed(numbered(f"{file}: annotation", annotations), parse, problems))
