"""Several data sets as one."""

from collections import Counter
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
        if not readers:
            raise InputError("Joined: no readers; give those of the data sets to join")
        roots = [reader.root for reader in readers]
        for root, count in Counter(roots).items():
            if count > 1:
                raise InputError(f"Joined: {root} is given {count} times; give it once")
        super().__init__(" + ".join(map(str, roots)))
        self.readers = dict(zip(_names(roots), readers, strict=True))

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


def _names(roots: Sequence[Path]) -> list[str]:
    """The names of the folders, or their whole paths where two have the same name."""
    names = [root.stem if root.suffix else root.name for root in roots]
    return names if len(set(names)) == len(names) else [root.as_posix() for root in roots]
