"""Several data sets as one."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from captioning.data.readers.reader import Contents, Reader, in_order
from captioning.errors import InputError


class Joined(Reader):
    """The images of several data sets, one data set after the other.

    A split has the images of all data sets that have this split. An image's id is its own id behind
    the name of its data set's folder, such as ``flickr8k/1000268201_693b08cb0e``, so that equal ids
    of different data sets stay apart.

    Args:
        readers: the data sets.

    Raises:
        InputError: no data set is given, or one of them twice.
    """

    def __init__(self, readers: Sequence[Reader]) -> None:
        roots = [reader.root for reader in readers]
        super().__init__(" + ".join(map(str, roots)))
        names = [root.stem if root.suffix else root.name for root in roots]
        if len(set(names)) < len(names):
            names = [root.as_posix() for root in roots]
        if len(set(names)) < len(names) or not names:
            raise InputError(f"Joined: give different data sets, not {self.root}")
        self.readers = dict(zip(names, readers, strict=True))

    @property
    def folders(self) -> list[Path]:
        """The folders of all data sets."""
        return [folder for reader in self.readers.values() for folder in reader.folders]

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that any of the data sets has."""
        return in_order(split for reader in self.readers.values() for split in reader.splits)

    def _load(self, split: str) -> Contents:
        joined = Contents([], [])
        for name, reader in self.readers.items():
            if split in reader.splits:
                its = reader.contents(split)
                joined.problems.extend(its.problems)
                joined.records.extend(
                    replace(record, image_id=f"{name}/{record.image_id}") for record in its.records
                )
        return joined
