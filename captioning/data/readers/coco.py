"""COCO's own layout: captions_*.json, and instances_*.json for boxes and masks."""

from collections import defaultdict
from functools import cached_property, partial
from pathlib import Path

from captioning.data.readers.reader import Contents, Problem, Reader, folder_of, in_order
from captioning.data.records import ImageObject, Record
from captioning.errors import InputError
from captioning.numbers import Year
from captioning.untrusted import field, read_json, short

CAPTIONS_REMEDY = "expected COCO's captions format (images with id, annotations with caption)"
INSTANCES_REMEDY = "expected COCO's instances format (annotations with bbox and category_id)"

MAX_PIXELS = 1_000_000  # of a box's edges; no photo that can be decoded has a longer side


class Coco(Reader):
    """A data set in COCO's layout.

    The captions of a split are in ``captions_<split><year>.json`` and its images in a folder
    ``<split><year>``. Records have objects if there is an ``instances_<split><year>.json``.
    A folder with several releases of one split names them in full (train2014, train2017).

    Args:
        root: the folder of the data set.
        images: folder of the images, or of one folder per split; by default ``<split><year>`` or
            ``images`` below `root`.
        annotations: folder of the JSON files; by default ``annotations`` below `root`.
        year: the release to read if the folder has several, such as 2017.
        objects: whether to read boxes and masks, which take gigabytes of memory for all of COCO.
    """

    def __init__(
        self,
        root: str | Path,
        images: str | Path | None = None,
        annotations: str | Path | None = None,
        year: Year | None = None,
        objects: bool = True,
    ) -> None:
        super().__init__(root, images)
        self.annotations = self.root / "annotations" if annotations is None else Path(annotations)
        self.year = year
        self.objects = objects

    @classmethod
    def recognises(cls, root: Path) -> bool:
        """Whether ``annotations/captions_*.json`` is there."""
        return any((root / "annotations").glob("captions_*.json"))

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that have a ``captions_*.json``."""
        return in_order(self._releases)

    @cached_property
    def _releases(self) -> dict[str, str]:
        """The release of each split, such as train2017 for train."""
        pattern = "captions_*.json" if self.year is None else f"captions_*{self.year}.json"
        found = defaultdict(list)
        for file in sorted(self.annotations.glob(pattern)):
            release = file.stem.removeprefix("captions_")
            found[release.rstrip("0123456789") or release].append(release)
        if not found:
            raise InputError(f"{self.annotations}: no {pattern} here; give the folder that has it")
        return {
            split if len(releases) == 1 else release: release
            for split, releases in found.items()
            for release in releases
        }

    def _load(self, split: str) -> Contents:
        release = self._releases[split]
        file = self.annotations / f"captions_{release}.json"
        get = partial(field, source=file, remedy=CAPTIONS_REMEDY)
        dataset = read_json(file)
        names: dict[int | str, str] = {}
        problems = []
        for entry in get(dataset, "images", list):
            image_id = get(entry, "id", int, str)
            if image_id in names:
                problems.append(Problem("image ids used twice", f"{image_id} in {file.name}"))
            names[image_id] = get(entry, "file_name", str)
        captions: dict[int | str, list[str]] = {image_id: [] for image_id in names}
        for entry in get(dataset, "annotations", list):
            image_id = get(entry, "image_id", int, str)
            caption = get(entry, "caption", str)
            if image_id in captions:
                captions[image_id].append(caption)
            else:
                name = f"image id {image_id} in {file.name}"
                problems.append(Problem("captions of images that are not listed", name))
        bases = [self.root, self.root / "images"] if self.images is None else [self.images]
        folders = [base / name for base in bases for name in (release, split)]
        folder = folder_of(names.values(), [*folders, *reversed(bases)], source=file)
        instances = self.annotations / f"instances_{release}.json"
        objects = _objects(instances) if self.objects and instances.exists() else {}
        records = [
            Record(folder / name, image_id, tuple(captions[image_id]), objects.get(image_id, ()))
            for image_id, name in names.items()
        ]
        return Contents(records, problems)


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
