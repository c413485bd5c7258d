"""Where the photos of images lie, by the names that a file of references has for them."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from captioning.data.readers.fields import field, short
from captioning.data.readers.reader import is_file
from captioning.errors import InputError
from captioning.untrusted import read_json

REMEDY = (
    "expected COCO's annotations (images with id and file_name), or Karpathy's format (images with "
    "filename), to know the photos by"
)


def named_photos(
    references: str | Path, folder: str | Path, images: Iterable[int | str]
) -> dict[int | str, Path]:
    """The photo of each image, in a folder.

    Args:
        references: what people wrote: a JSON file for `captioning.data.results.read_references`,
            which names the photo of each image, or Flickr8k's, whose images are named as their
            photos.
        folder: of the photos, or of the folders that the file names, such as val2014.
        images: their ids in the results or ratings.

    Raises:
        InputError: the folder is missing, the file is malformed, or names no photo of an image.
    """
    if not Path(folder).is_dir():
        raise InputError(f"{folder}: no such folder; give the folder of the photos")
    if Path(references).is_dir() or Path(references).suffix.lower() == ".txt":
        names = {str(image): _with_suffix(str(image)) for image in images}
    else:
        names = _names(references)
    photos: dict[int | str, Path] = {}
    for image in images:
        if str(image) not in names:
            raise InputError(f"{references}: no photo of image {short(image)} is named; {REMEDY}")
        name = names[str(image)]
        # Karpathy's names have the folder of the split, in which not everybody keeps the photos.
        inside = Path(folder) / name
        photos[image] = inside if is_file(inside) else Path(folder) / Path(name).name
    return photos


def check_photos(photos: Mapping[Any, Path]) -> None:
    """Make sure that every photo is there.

    Raises:
        InputError: one is missing.
    """
    missing = [path for path in photos.values() if not is_file(path)]
    if missing:
        raise InputError(
            f"{missing[0]}: no such photo, as {len(missing):,} of {len(photos):,}; "
            "check the folder of the photos"
        )


def _with_suffix(image: str) -> str:
    return image if "." in image else f"{image}.jpg"


def _names(path: str | Path) -> dict[str, str]:
    """By image id the photo's name."""
    named: Callable[[Any, str | Path], tuple[Any, str]] = _coco
    dataset = read_json(path)
    if isinstance(dataset, dict) and "annotations" not in dataset:
        named = _karpathy
    entries = field(dataset, "images", list, source=path, remedy=REMEDY)
    return {str(image): name for image, name in (named(entry, path) for entry in entries)}


def _coco(entry: Any, path: str | Path) -> tuple[Any, str]:
    image = field(entry, "id", int, str, source=path, remedy=REMEDY)
    return image, field(entry, "file_name", str, source=path, remedy=REMEDY)


def _karpathy(entry: Any, path: str | Path) -> tuple[Any, str]:
    name: str = field(entry, "filename", str, source=path, remedy=REMEDY)
    if "filepath" in entry:
        name = f"{field(entry, 'filepath', str, source=path, remedy=REMEDY)}/{name}"
    key = "cocoid" if "cocoid" in entry else "imgid"
    return field(entry, key, int, str, source=path, remedy=REMEDY), name
