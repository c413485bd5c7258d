"""Photos with their captions in a text file of the same name beside each."""

import os
from collections.abc import Iterator
from pathlib import Path

from captioning.data.images import IMAGE_SUFFIXES
from captioning.data.readers.reader import SPLITS, OneFileReader, Problem, split_name
from captioning.data.records import Record
from captioning.errors import InputError
from captioning.untrusted import text_of


class Sidecar(OneFileReader):
    """Photos such as ``photo.jpg``, and beside each a ``photo.txt`` with one caption a line.

    Photos may be in folders; the id of a photo is its path below `root`. The split is the name of
    the uppermost folder if all of these name splits, such as train and validation. Otherwise a hash
    of the id decides between train and val.

    Args:
        root: the folder of the data set.
        images: folder of the photos and text files; by default `root`.
        val_fraction: share of the photos for validation if folders name no splits.
    """

    @classmethod
    def resembles(cls, root: Path) -> bool:
        """Whether a photo has a text file beside it."""
        return any(text is not None for _, text in _pairs(root))

    def _read(self, problems: list[Problem]) -> dict[str, list[Record]]:
        folder = self.root if self.images is None else self.images
        records = []
        for photo, text in _pairs(folder):
            lines = () if text is None else text_of(text).splitlines()
            captions = tuple(filter(None, map(str.strip, lines)))
            records.append(Record(photo, photo.relative_to(folder).as_posix(), captions))
        if not any(record.captions for record in records):
            raise InputError(
                f"{folder}: no captions; put a text file beside each photo, photo.txt for photo.jpg"
            )
        splits: dict[str, list[Record]] = {}
        for record in records:
            first, *below = str(record.image_id).split("/")
            splits.setdefault(split_name(first) if below else "", []).append(record)
        is_named = set(splits) <= set(SPLITS) and set(splits) != {"train"}
        return splits if is_named else self._divided(records)


def _pairs(folder: Path) -> Iterator[tuple[Path, Path | None]]:
    """Every photo in and below a folder in order, and its text file if there is one."""
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        texts = {name.rpartition(".")[0]: name for name in files if name.lower().endswith(".txt")}
        for name in sorted(files):
            stem, dot, suffix = name.rpartition(".")
            if (dot + suffix).lower() in IMAGE_SUFFIXES and not name.startswith("."):
                text = texts.get(stem, texts.get(name))  # photo.txt, or photo.jpg.txt
                yield Path(parent, name), None if text is None else Path(parent, text)
