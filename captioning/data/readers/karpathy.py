"""Karpathy's splits: one dataset_*.json, as for COCO, Flickr8k and Flickr30k."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from captioning.data.readers.dataset_files import find_images, has_keys, json_files, photo_folders
from captioning.data.readers.reader import (
    OneFileReader,
    Problem,
    field,
    listed,
    numbered,
    parsed,
    split_name,
)
from captioning.data.records import Record
from captioning.errors import InputError, reading
from captioning.untrusted import read_json

OF_HUGGING_FACE = ("dataset_dict", "dataset_info", "dataset_infos")
"""Other files of such a name."""


class Entry(NamedTuple):
    """An image of the file."""

    image_id: int | str  # COCO's if there is one, else the number in the file
    photo: str  # path relative to the folder of the photos; "" if missing
    captions: tuple[str, ...]
    split: str  # "" if missing


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
        return root.match("dataset*.json") if root.is_file() else bool(_named_files(root))

    @classmethod
    def resembles(cls, root: Path) -> bool:
        """Whether a JSON file of any name is in this format."""
        return any(map(_has_sentences, json_files(root)))

    def _read(self, problems: list[Problem]) -> dict[str, list[Record]]:
        files = [self.root]
        if self.root.is_dir():
            files = _named_files(self.root) or list(filter(_has_sentences, json_files(self.root)))
        if len(files) != 1:
            held = listed(file.name for file in files)
            raise InputError(f"{self.root}: holds {held}; give the path of one dataset_*.json")
        file, root = files[0], self.root if self.root.is_dir() else self.root.parent
        entries = entries_in(file, read_json(file), problems, ("filename", "split"))
        folders = [self.images] if self.images else photo_folders(file.parent, root)
        photos = [entry.photo for entry in entries]
        paths = find_images(photos, folders, source=file, as_written=self.captions_only)
        records = defaultdict(list)
        for entry, path in zip(entries, paths, strict=True):
            records[entry.split].append(Record(path, entry.image_id, entry.captions))
        return records


def entries_in(
    file: Path, dataset: Any, problems: list[Problem], needed: Sequence[str] = ()
) -> list[Entry]:
    """The images of a file in Karpathy's format that have ids, captions and the `needed` keys.

    Raises:
        InputError: it is in another format.
    """
    with reading(f"{file}: not Karpathy's format"):
        rows = numbered(f"{file}: image", field(dataset, "images", list))

    def parse(image: Any) -> Entry:
        captions = tuple(field(each, "raw", str) for each in field(image, "sentences", list))
        for key in needed:
            field(image, key, str)
        name = image.get("filename", "")
        return Entry(
            field(image, "cocoid" if "cocoid" in image else "imgid", int, str),
            f"{field(image, 'filepath', str)}/{name}" if "filepath" in image else str(name),
            captions,
            split_name(str(image.get("split", ""))),
        )

    return [entry for _, entry in parsed(rows, parse, problems)]


def _named_files(root: Path) -> list[Path]:
    return sorted(f for f in root.glob("dataset_*.json") if f.stem not in OF_HUGGING_FACE)


def _has_sentences(file: Path) -> bool:
    return has_keys(file, "images", "sentences", "filename", "split")
