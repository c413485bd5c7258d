"""Karpathy's splits: one dataset_*.json, as for COCO, Flickr8k and Flickr30k."""

from collections import defaultdict
from collections.abc import Callable
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from captioning.data.readers.dataset_files import find_images, has_keys, json_files, photo_folders
from captioning.data.readers.reader import LONGEST, OneFileReader, split_name
from captioning.data.records import Record
from captioning.errors import InputError
from captioning.untrusted import field, read_json

REMEDY = "expected Karpathy's format (images with filename, split and sentences)"

OF_HUGGING_FACE = ("dataset_dict", "dataset_info", "dataset_infos")
"""Other files of such a name."""

Get = Callable[..., Any]  # `captioning.untrusted.field` with its file and its remedy


class Karpathy(OneFileReader):
    """A data set in the format of Karpathy's ``dataset_coco.json``; restval belongs to train.

    Args:
        root: the folder that holds the one ``dataset_*.json``, or the path of that file.
        images: folder of the images, or of the folders that the file names (train2014, ...); by
            default the folder of the file, or wherever they are below it.
    """

    @classmethod
    def recognises(cls, root: Path) -> bool:
        """Whether `root` is a ``dataset*.json`` or a folder that holds one."""
        if root.is_file():
            return root.match("dataset*.json")
        return bool(_named_files(root))

    @classmethod
    def resembles(cls, root: Path) -> bool:
        """Whether a JSON file of any name is in this format."""
        return any(map(_has_sentences, json_files(root)))

    @cached_property
    def records(self) -> dict[str, list[Record]]:
        """The records of each split."""
        files = [self.root]
        if self.root.is_dir():
            files = _named_files(self.root) or list(filter(_has_sentences, json_files(self.root)))
        if len(files) != 1:
            held = ", ".join(file.name for file in files)[:LONGEST] or "no dataset_*.json"
            raise InputError(f"{self.root}: holds {held}; give the path of one file")
        file = files[0]
        get = partial(field, source=file, remedy=REMEDY)
        images = get(read_json(file), "images", list)
        names = [photo_name(entry, get) for entry in images]
        root = self.root if self.root.is_dir() else file.parent
        folders = [self.images] if self.images else photo_folders(file.parent, root)
        paths = find_images(names, folders, source=file, as_written=self.captions_only)
        records = defaultdict(list)
        for entry, path in zip(images, paths, strict=True):
            records[split_name(get(entry, "split", str))].append(
                Record(path, image_id(entry, get), sentences(entry, get))
            )
        return records


def _named_files(root: Path) -> list[Path]:
    return sorted(f for f in root.glob("dataset_*.json") if f.stem not in OF_HUGGING_FACE)


def _has_sentences(file: Path) -> bool:
    return has_keys(file, "images", "sentences", "filename", "split")


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
