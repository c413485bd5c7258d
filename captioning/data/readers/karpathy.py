"""Karpathy's splits: one dataset_*.json, as for COCO, Flickr8k and Flickr30k."""

from collections import defaultdict
from functools import cached_property
from pathlib import Path
from typing import Any

from captioning.data.readers.reader import OneFileReader, folder_of
from captioning.data.records import Record
from captioning.errors import InputError
from captioning.untrusted import field, read_json

REMEDY = "expected Karpathy's format (images with filename, split and sentences)"


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
        file = self._file()
        dataset = read_json(file)
        images = field(dataset, "images", list, source=file, remedy=REMEDY)
        names = [photo_name(entry, file) for entry in images]
        folder = folder_of(names, self._folders(file), source=file)
        records = defaultdict(list)
        for entry, name in zip(images, names, strict=True):
            split = field(entry, "split", str, source=file, remedy=REMEDY)
            records["train" if split == "restval" else split].append(
                Record(folder / name, image_id(entry, file), sentences(entry, file))
            )
        return records

    def _file(self) -> Path:
        if not self.root.is_dir():
            return self.root
        found = sorted(self.root.glob("dataset_*.json"))
        if not found:
            raise InputError(f"{self.root}: no dataset_*.json here; give the file or its folder")
        if len(found) > 1:
            names = ", ".join(file.name for file in found)
            raise InputError(f"{self.root}: holds {names}; give the path of one of them")
        return found[0]

    def _folders(self, file: Path) -> list[Path]:
        if self.images is not None:
            return [self.images]
        usual = ("images", "Images", "Flicker8k_Dataset", "flickr30k_images", "flickr30k-images")
        return [file.parent, *(file.parent / name for name in usual)]


def image_id(entry: Any, file: str | Path, remedy: str = REMEDY) -> int | str:
    """The id of an image: COCO's if there is one, else the number in the file."""
    key = "cocoid" if isinstance(entry, dict) and "cocoid" in entry else "imgid"
    found: int | str = field(entry, key, int, str, source=file, remedy=remedy)
    return found


def photo_name(entry: Any, file: str | Path, remedy: str = REMEDY) -> str:
    """The path of an image's photo below the folder of the photos."""
    name: str = field(entry, "filename", str, source=file, remedy=remedy)
    if "filepath" in entry:
        return f"{field(entry, 'filepath', str, source=file, remedy=remedy)}/{name}"
    return name


def sentences(entry: Any, file: str | Path, remedy: str = REMEDY) -> tuple[str, ...]:
    """The captions of an image."""
    found = field(entry, "sentences", list, source=file, remedy=remedy)
    return tuple(field(sentence, "raw", str, source=file, remedy=remedy) for sentence in found)
