"""The JSON formats of COCO (captions, boxes, masks) and of Karpathy's splits."""

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from captioning.data.readers import dataset_files
from captioning.data.readers.data_set import UNLISTED, DataSet, Problem
from captioning.data.readers.fields import field, numbered, parse_entries, shown_names
from captioning.data.readers.reader import Reader, Row, SplitsAndProblems, read_files
from captioning.data.records import ImageObject, Record
from captioning.data.splits import split_in, split_name
from captioning.errors import InputError, format_value, reading
from captioning.files import read_json

CAPTIONS = "captions_"
ANNOTATION_KEYS = ("annotations", "image_id", "caption")
KARPATHY_KEYS = ("images", "sentences", "raw")

ImageId = int | str


class Coco(Reader):
    """A data set in COCO's format.

    The captions of a split are in ``captions_<split><year>.json`` and its images in a folder
    ``<split><year>``. Records have objects if there is an ``instances_<split><year>.json``.
    A folder with several releases of one split names them in full (train2014, train2017).

    Where no file has such a name, all JSON files in this format are read. A word such as val in a
    file's name is its split; a single file without such a word is divided into train and val, and
    so is that of train if val has none. An image without a file name is called by its id.
    VizWiz' captions that are marked as rejected or precanned are left out.

    Args:
        root: the folder of the data set, or its one JSON file.
        images: folder of the images, or of one folder per split; by default ``<split><year>`` or
            ``images`` below `root`.
        annotations: folder of the JSON files; by default ``annotations`` below `root`.
        year: the release to read if the folder has several, such as 2017.
        objects: whether to read boxes and masks, which take gigabytes of memory for all of COCO;
            the name of a split reads those of this split.
        val_fraction: see `Reader`.
    """

    def __init__(
        self,
        root: str | Path,
        images: str | Path | None = None,
        annotations: str | Path | None = None,
        year: int | None = None,
        objects: bool | str = True,
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
        return bool(dataset_files.json_files(root, *ANNOTATION_KEYS))

    def read(self) -> DataSet:
        return self.make_data_set(*read_files(self._caption_files().items(), self._read_file))

    def _caption_files(self) -> dict[str, Path]:
        """The file of each split; under "", the one to divide into train and val."""
        folder, pattern = self.annotations, f"{CAPTIONS}*{self.year or ''}.json"
        files = sorted((folder or self.root / "annotations").glob(pattern))
        names = [file.stem.removeprefix(CAPTIONS) for file in files]
        splits = [split_name(name.rstrip("0123456789") or name) for name in names]
        if not files and self.year is None:
            files = dataset_files.json_files(folder or self.root, *ANNOTATION_KEYS)
            names = [file.stem for file in files]
            splits = [split_in(name) or name for name in names]
            if len(files) == 1 and split_in(names[0]) is None:
                return {"": files[0]}
        if not files:
            raise InputError(f"{folder or self.root}: no {pattern} here; give its folder")
        files_by_split: dict[str, Path] = {}
        for split, name, file in zip(splits, names, files, strict=True):
            files_by_split[split if splits.count(split) == 1 else name] = file
        if "train" in files_by_split and "val" not in splits:  # with nothing to validate on
            files_by_split[""] = files_by_split.pop("train")
        return files_by_split

    def _read_file(self, file: Path, split: str) -> SplitsAndProblems:
        release = file.stem.removeprefix(CAPTIONS)
        names, captions, problems = _read_captions(file, split or None)
        objects: dict[ImageId, list[ImageObject]] = {}
        instances = file.with_name(f"instances_{release}.json")
        if self._needs_objects(split) and instances.exists():
            objects, problems_of_objects = _read_objects(instances, names, split or None)
            problems += problems_of_objects
        photo_names = [names[image_id] for image_id in captions]
        folder_split = split_in(release) or split
        folders = self._photo_folders(release, folder_split)
        photos = self.photo_paths(photo_names, file, folders, split=folder_split)
        records = [
            Record(photo, image_id, tuple(captions[image_id]), tuple(objects.get(image_id, ())))
            for photo, image_id in zip(photos, captions, strict=True)
        ]
        return {split: records}, problems

    def _needs_objects(self, split: str) -> bool:
        if isinstance(self.objects, bool):
            return self.objects
        objects_split = split_name(self.objects)
        is_divided = not split and objects_split in ("train", "val")
        return is_divided or objects_split == split_name(split)

    def _photo_folders(self, release: str, split: str) -> list[Path]:
        bases = [self.folder, self.folder / "images"] if self.images is None else [self.images]
        folders = [base / name for base in bases for name in (release, split) if name]
        if split:
            folders += dataset_files.folders_of(split, bases)
        return folders + dataset_files.photo_folders(*reversed(bases))


def _read_captions(
    file: Path, split: str | None
) -> tuple[dict[ImageId, str], dict[ImageId, list[str]], list[Problem]]:
    """The names of a file's images and their captions, by id."""
    dataset = read_json(file)
    with reading(f"{file}: not COCO's captions"):
        annotations = numbered(f"{file}: annotation", field(dataset, "annotations", list))
        images = numbered(f"{file}: image", field({"images": []} | dataset, "images", list))
    ids_and_names, problems = parse_entries(images, _parse_image, split)
    ids_and_captions, malformed = parse_entries(annotations, _parse_caption, split)
    problems += malformed
    names = dict(ids_and_names)
    if not names:
        names = {image_id: str(image_id) for image_id, _ in ids_and_captions}
    captions: dict[ImageId, list[str]] = {image_id: [] for image_id in names}
    find_image = dataset_files.id_finder(names)
    for image_id, caption in ids_and_captions:
        listed_id = find_image(image_id)
        if listed_id is None:
            problems.append(Problem(UNLISTED, f"image id {image_id} in {file.name}", split))
        elif caption is not None:
            captions[listed_id].append(caption)
    return names, captions, problems


def _parse_image(entry: Any) -> tuple[ImageId, str]:
    image_id = field(entry, "id", int, str)
    return image_id, field({"file_name": str(image_id)} | entry, "file_name", str)


def _parse_caption(entry: Any) -> tuple[ImageId, str | None]:
    """The id of the image and the caption, or None if it is marked as rejected or precanned."""
    image_id, caption = field(entry, "image_id", int, str), field(entry, "caption", str)
    is_rejected = entry.get("is_rejected") or entry.get("is_precanned")
    return image_id, None if is_rejected else caption


def _read_objects(
    file: Path, image_ids: Iterable[ImageId], split: str | None
) -> tuple[dict[ImageId, list[ImageObject]], list[Problem]]:
    """The objects of images by their ids."""
    dataset = read_json(file)
    with reading(f"{file}: not COCO's instances (objects: false of the reader leaves boxes out)"):
        annotations = numbered(f"{file}: annotation", field(dataset, "annotations", list))
        categories = field(dataset, "categories", list)
        names = {field(entry, "id", int): field(entry, "name", str) for entry in categories}

    def parse(entry: Any) -> tuple[ImageId, ImageObject]:
        box, category = field(entry, "bbox", list), field(entry, "category_id", int)
        # Comparing refuses NaN, and a number of 400 digits has no float.
        if len(box) != 4 or not all(isinstance(x, int | float) and abs(x) <= 1e6 for x in box):
            raise ValueError(f"bbox {format_value(box)} is not left, top, width, height in pixels")
        if category not in names:
            raise ValueError(f"category_id {category} is not listed")
        left, top, width, height = map(float, box)
        mask = entry.get("segmentation")
        image_object = ImageObject(names[category], (left, top, width, height), mask)
        return field(entry, "image_id", int, str), image_object

    ids_and_objects, problems = parse_entries(annotations, parse, split)
    find_image = dataset_files.id_finder(image_ids)
    objects: dict[ImageId, list[ImageObject]] = defaultdict(list)
    for image_id, image_object in ids_and_objects:
        listed_id = find_image(image_id)
        if listed_id is not None:  # images without captions have objects, too
            objects[listed_id].append(image_object)
    return objects, problems


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
        files = root.glob("dataset_*.json")
        return any(dataset_files.has_keys(file, *KARPATHY_KEYS) for file in files)

    @classmethod
    def resembles(cls, root: Path) -> bool:
        return bool(dataset_files.json_files(root, *KARPATHY_KEYS))

    def read(self) -> DataSet:
        files = [self.root]
        if self.root.is_dir():
            files = dataset_files.json_files(self.root, *KARPATHY_KEYS)
        if len(files) != 1:
            names = shown_names(file.name for file in files)
            raise InputError(f"{self.root}: holds {names}; give the path of one dataset_*.json")
        [file] = files
        with reading(f"{file}: not Karpathy's format"):
            images = numbered(f"{file}: image", field(read_json(file), "images", list))
        rows, problems = parse_entries(images, _parse_karpathy)
        return self.make_data_set(self.make_records(rows, file), problems)


def _parse_karpathy(image: Any) -> Row:
    captions = [field(sentence, "raw", str) for sentence in field(image, "sentences", list)]
    image_id = field(image, "cocoid" if "cocoid" in image else "imgid", int, str)
    image = {"filename": str(image_id), "split": ""} | image  # references may lack these
    name = field(image, "filename", str)
    photo = f"{field(image, 'filepath', str)}/{name}" if "filepath" in image else name
    return Row(photo, captions, split_name(field(image, "split", str)), image_id)
