"""The interface of readers of data sets."""

import hashlib
import re
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from captioning.data.records import MOST_CAPTIONS, Record
from captioning.errors import InputError
from captioning.numbers import Checked, ShareBelowOne
from captioning.progress_bar import stage

SPLITS = ("train", "val", "test")
ALIASES = {
    **{name: name for name in SPLITS},
    **dict.fromkeys(("training", "restval"), "train"),  # Karpathy's restval
    **dict.fromkeys(("validation", "valid", "dev"), "val"),
    "testing": "test",
}
"""The usual name of each name of a split; their case does not matter."""

VAL_FRACTION, VAL_FRACTION_OF_FEW, FEW = 0.1, 0.25, 100
"""The share of validation images where a data set has no splits, and that of fewer than so many.

With dozens of photos, a tenth of them cannot show which of two models is better.
"""

LONGEST = 200  # characters of a list in a message; a broken file may have thousands of splits


@dataclass(frozen=True)
class Problem:
    """A fault of a data set."""

    kind: str  # its heading in a report, in the plural: "empty captions"
    name: str  # of the faulty image or caption


@dataclass(frozen=True)
class Contents:
    """The images of one split with their captions, and the faults of others that are omitted."""

    records: list[Record]
    problems: list[Problem]


class Reader(Checked, ABC):
    """A data set in one file format.

    Args:
        root: the folder of the data set, or the file that describes it.
        images: folder of the photos; the usual folders by default.
        val_fraction: share of the photos for validation, from 0 to below 1, if there are no splits;
            by default a quarter of fewer than 100 photos, else a tenth. Unless it is 0, each split
            gets at least one of two or more photos.
    """

    captions_only = False
    """Whether photos are not looked for: a record's `image` is then the name as written."""

    def __init__(
        self,
        root: str | Path,
        images: str | Path | None = None,
        val_fraction: ShareBelowOne | None = None,
    ) -> None:
        self.root = Path(root)
        self.images = None if images is None else Path(images)
        self.val_fraction = val_fraction

    @classmethod
    def recognises(cls, root: Path) -> bool:
        """Whether `root` looks like a data set in this format; by default it never does."""
        return False

    @classmethod
    def resembles(cls, root: Path) -> bool:
        """Whether files of any name in `root` hold this format.

        Asked only if no reader recognises the usual names.
        """
        return False

    @property
    @abstractmethod
    def splits(self) -> tuple[str, ...]:
        """The available splits: train, val and test in this order, then any others."""

    @abstractmethod
    def _load(self, split: str) -> Contents:
        """The unfiltered contents of one of `splits`, including images without captions."""

    def read(self, split: str) -> list[Record]:
        """The images of a split that have captions; empty captions are left out.

        Raises:
            InputError: the split is unknown or has no captions, or a file is malformed.
        """
        records = self.contents(split).records
        if not records:
            raise InputError(
                f"{self.root}: split {split!r} has no captions; add some, or use another split"
            )
        return records

    @stage("reading the captions")
    def contents(self, split: str) -> Contents:
        """The records that `read` returns, and the problems of the others.

        Raises:
            InputError: as `read`, but a split may be empty.
        """
        # As called, else the one that is called validation where val is asked for.
        by_name = {split_name(name): name for name in self.splits} | {n: n for n in self.splits}
        name = by_name.get(split, by_name.get(split_name(split)))
        if name is None:
            found = ", ".join(self.splits)[:LONGEST] or "none"
            raise InputError(
                f"{self.root} has no split {split!r}; it has {found}; name one of these (--split; "
                "train_split or val_split of a configuration's data)"
            )
        loaded = self._load(name)
        records, problems = [], list(loaded.problems)
        for record in loaded.records:
            kept = [number for number, text in enumerate(record.captions) if text.strip()]
            captions = tuple(record.captions[number] for number in kept)
            phrases = tuple(record.phrases[number] for number in kept if record.phrases)
            name = str(record.image)
            if len(captions) > MOST_CAPTIONS:
                raise InputError(f"{name}: more than {MOST_CAPTIONS:,} captions; leave some out")
            problems += [Problem("empty captions", name)] * (len(record.captions) - len(captions))
            if captions:
                records.append(replace(record, captions=captions, phrases=phrases))
            else:
                problems.append(Problem("images without captions", name))
        return Contents(records, problems)

    def _divided(self, records: Sequence[Record]) -> dict[str, list[Record]]:
        """Train and val of a data set without splits.

        A hash of the id decides, so images keep their split when others are added.
        """
        ordered = sorted({str(record.image_id) for record in records}, key=_place)
        share = self.val_fraction
        if share is None:
            share = VAL_FRACTION if len(ordered) >= FEW else VAL_FRACTION_OF_FEW
        validation = {name for name in ordered if _place(name) < share}
        if share:
            validation = validation.union(ordered[:1]).difference(ordered[-1:])
        splits = defaultdict(list)
        for record in records:
            splits["val" if str(record.image_id) in validation else "train"].append(record)
        return splits


class OneFileReader(Reader):
    """A data set with the captions of all splits in one file."""

    @cached_property
    @abstractmethod
    def records(self) -> dict[str, list[Record]]:
        """The records of each split; cached, since a large file takes seconds to parse."""

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that the file names."""
        return in_order(self.records)

    def _load(self, split: str) -> Contents:
        return Contents(self.records[split], [])


def in_order(splits: Iterable[str]) -> tuple[str, ...]:
    """The names of splits without repeats: train, val and test first, then others by name."""
    found = set(splits)
    return (*(name for name in SPLITS if name in found), *sorted(found.difference(SPLITS)))


def split_name(name: str) -> str:
    """The usual name of a split, such as val for Validation; other names are unchanged."""
    return ALIASES.get(name.strip().lower(), name.strip())


def split_in(name: str) -> str | None:
    """The split named by a word of a file or folder name; None unless exactly one is."""
    words = re.findall(r"[a-z]+", name.lower())
    found = {ALIASES[word] for word in words if word in ALIASES}
    return found.pop() if len(found) == 1 else None


def _place(name: str) -> float:
    """A hash of the name, spread evenly over 0..1; Python's own differs from run to run."""
    digest = hashlib.sha256(name.encode(errors="surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") / 2**64
