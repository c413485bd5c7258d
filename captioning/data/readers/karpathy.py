"""Karpathy's splits: one dataset_*.json, as for COCO, Flickr8k and Flickr30k."""

from collections import defaultdict
from collections.abc import Callable
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from captioning.data.readers.reader import OneFileReader, folder_of
from captioning.data.records import Record
from captioning.untrusted import field, read_json

REMEDY = "expected Karpathy's format (images with filename, split and sentences)"
FOLDERS = ("images", "Images", "Flicker8k_Dataset", "flickr30k_images", "flickr30k-images")

Get = Callable[..., Any]  # `captioning.untrusted.field` with its file and its remedy


class Karpathy(OneFileReader):
    """A data set in the format of Karpathy's ``dataset_coco.json``; restval belongs to train.

    Args:
        root: the folder that holds the one ``dataset_*.json``, or the path of that file.
        images: folder of the images, or of the folders that the file names (train2014, ...); by
            default the folder of the file, or one of the usual names in it.
    """

    @classmethod
    def recognises(cls, root: Path) -> bool:
        """Whether `root` is a ``dataset*.json`` or a folder that holds one."""
        if root.is_file():
            return root.match("dataset*.json")
        return any(root.glob("dataset_*.json"))

    @cached_property
    def records(self) -> dict[str, list[Record]]:
        """The records of each split."""
        file = self._file("dataset_*.json")
        get = partial(field, source=file, remedy=REMEDY)
        images = get(read_json(file), "images", list)
        names = [photo_name(entry, get) for entry in images]
        folders = [file.parent, *(file.parent / name for name in FOLDERS)]
        folder = folder_of(names, [self.images] if self.images else folders, source=file)
        records = defaultdict(list)
        for entry, name in zip(images, names, strict=True):
            split = get(entry, "split", str)
            records["train" if split == "restval" else split].append(
                Record(folder / name, image_id(entry, get), sentences(entry, get))
            )
        return records


def image_id(entry: Any, get: Get) -> int | str:
    """The id of an image: COCO's if there is one, else the number in the file."""
    key = "cocoid" if isinstance(entry, dict) and "cocoid" in entry else "imgid"
    found: int | str = get(entry, key, int, str)
    return found


def photo_name(entry: Any, get: Get) -> str:
    """The path of an image's photo below the folder of the photos."""
    name: str = get(entry, "filename", str)
    return f"{get(entry, 'filepath', str)}/{name}" if "filepath" in entry else name


def sentences(entry: Any, get: Get) -> tuple[str, ...]:
    """The captions of an image."""
    return tuple(get(sentence, "raw", str) for sentence in get(entry, "sentences", list))
