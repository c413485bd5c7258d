"""The interface of readers of data sets, and what they share."""

import hashlib
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple, TypeVar

from captioning.data.images import HEIF_SUFFIXES, JPEG_SUFFIXES
from captioning.data.photo_files import photo_hash, photo_size
from captioning.data.readers import dataset_files as files
from captioning.data.records import Record
from captioning.data.splits import in_order, split_in, split_name
from captioning.errors import InputError, shown
from captioning.progress_bar import say, stage
from captioning.shelf import data_path

Parsed = TypeVar("Parsed")

VAL_FRACTION = 0.2
"""The share of validation images where a data set has no split val."""

COPY = re.compile(r"(?i)( ?\(\d+\)|(?<![ _-])[ _-]+copy( ?\(?\d+\)?)?)(?=(\.\w+)?$)")
"""What file managers add to the name of a copy: "01 (1).jpg", "01 - Copy.jpg"."""

CAMERA_SUFFIXES = JPEG_SUFFIXES | HEIF_SUFFIXES
"""Formats of one exposure."""

MOST_COPIES = 3
"""Photos that are named as copies of one; "download (4).jpg" belongs to a series of others."""

MALFORMED = "malformed rows"


@dataclass(frozen=True)
class Problem:
    """A fault of a data set."""

    kind: str  # its heading in a report, in the plural: "captions without words"
    name: str  # of the faulty image, caption or row


@dataclass(frozen=True)
class Contents:
    """The images of one split with their captions, and the faults of others that are omitted."""

    records: list[Record]
    problems: list[Problem]


class Row(NamedTuple):
    """Captions of a photo; it may have others in other rows."""

    name: str
    captions: Sequence[str]
    split: str | None
    image_id: int | str


class Reader:
    """A data set in one file format. A subclass has `splits` and `_load`, or `_read` alone.

    Args:
        root: the folder of the data set, the file that describes it, or an address of the Hub, such
            as ``hf://datasets/owner/name@revision``.
        images: folder of the photos; the usual folders by default.
        val_fraction: share of the photos for validation if no split is val; by default a
            fifth. Unless it is 0, each split gets one.
    """

    captions_only = False
    """Whether photos are not looked for, so that a record's `image` is the name as written."""

    def __init__(
        self, root: str | Path, images: str | Path | None = None, val_fraction: float | None = None
    ) -> None:
        self.root = data_path(root)
        self.folder = self.root.parent if self.root.is_file() else self.root
        self.images = None if images is None else Path(images)
        self.val_fraction = val_fraction

    @classmethod
    def recognises(cls, root: Path) -> bool:
        """Whether the names of files in `root` are those of this format."""
        return False

    @classmethod
    def resembles(cls, root: Path) -> bool:
        """Whether files of any name hold this format; asked if no reader recognises `root`."""
        return False

    @property
    def folders(self) -> list[Path]:
        """The folder of the data set, and that of the photos if another one is given."""
        return [self.folder] if self.images is None else [self.folder, self.images]

    @property
    def splits(self) -> tuple[str, ...]:
        """The available splits: train, val and test in this order, then any others."""
        return in_order(self._contents)

    def _load(self, split: str) -> Contents:
        """The unfiltered contents of one of `splits`, including images without captions."""
        return self._contents[split]

    def _read(self, problems: list[Problem]) -> dict[str, list[Record]]:
        """The records of each split, those of no split under ""; problems get faults of rows."""
        raise NotImplementedError

    @cached_property
    def _contents(self) -> dict[str, Contents]:
        """What `_read` finds of each split; the problems belong to the first one."""
        problems: list[Problem] = []
        divided = self._divided(self._read(problems))
        found = {split: Contents(its, []) for split, its in divided.items()}
        if problems and not found:
            raise InputError(problems[0].name)
        for first in in_order(found)[:1]:
            found[first].problems.extend(problems)
        return found

    def read(self, split: str) -> list[Record]:
        """The images of a split with captions; wordless captions and malformed rows are left out.

        Raises:
            InputError: the split is unknown or has no captions, or a file cannot be read.
        """
        contents = self.contents(split)
        malformed = [problem.name for problem in contents.problems if problem.kind == MALFORMED]
        if not contents.records:
            why = malformed[0] if malformed else "add some, or use another split"
            raise InputError(f"{self.root}: split {split!r} has no captions; {why}")
        if malformed:
            rest = f", as are {len(malformed) - 1} more rows" if malformed[1:] else ""
            say(f"captioning: {malformed[0]}; left out{rest}")
        return contents.records

    def split_called(self, split: str) -> str | None:
        """The split of this name, else the one that is called validation where val is asked for."""
        by_name = {split_name(name): name for name in self.splits} | {n: n for n in self.splits}
        return by_name.get(split, by_name.get(split_name(split)))

    @stage("reading the captions")
    def contents(self, split: str) -> Contents:
        """The records that `read` returns, perhaps none, and the problems of the others."""
        name = self.split_called(split)
        if name is None:
            raise InputError(
                f"{self.root} has no split {split!r}; it has {', '.join(self.splits)}; name one of "
                "these (--split; train_split or val_split of a configuration's data)"
            )
        loaded = self._load(name)
        records, problems = [], list(loaded.problems)
        for record in loaded.records:
            # Emoji and dots alone are no words to any tokenizer.
            kept = [n for n, text in enumerate(record.captions) if any(map(str.isalnum, text))]
            captions = tuple(record.captions[number] for number in kept)
            phrases = tuple(record.phrases[number] for number in kept if record.phrases)
            wordless = len(record.captions) - len(captions)
            problems += [Problem("captions without words", str(record.image))] * wordless
            if captions:
                records.append(replace(record, captions=captions, phrases=phrases))
            else:
                problems.append(Problem("images without captions", str(record.image)))
        return Contents(records, problems)

    def _records(self, rows: Iterable[Row], source: Path, *options: Any) -> dict[str, list[Record]]:
        """The records of each split, those of no split under ""; see `find_images` for photos."""
        captions: dict[tuple[str, str, int | str], list[str]] = defaultdict(list)
        for row in rows:
            captions[row.split or "", row.name, row.image_id].extend(row.captions)
        paths = self._photos([name for _, name, _ in captions], source, *options)
        records: dict[str, list[Record]] = defaultdict(list)
        for path, ((split, _, image_id), texts) in zip(paths, captions.items(), strict=True):
            records[split].append(Record(path, image_id, tuple(texts)))
        return records

    def _photos(
        self, names: list[str], source: Path, folders: Sequence[Path] = (), *options: Any
    ) -> list[Path]:
        if self.captions_only:
            return list(map(Path, names))
        usual = [self.images] if self.images else files.photo_folders(source.parent, self.folder)
        return files.find_images(names, folders or usual, source, *options)

    def _divided(self, records: dict[str, list[Record]]) -> dict[str, list[Record]]:
        """The records with those of no split in train and val; without val, so are those of train.

        A hash of the id decides, so images keep their split when others are added. Copies of an
        image come into its split.
        """

        def place(name: str) -> int:  # Python's own hash differs from run to run
            digest = hashlib.sha256(name.encode(errors="surrogatepass")).digest()
            return int.from_bytes(digest[:8], "big")

        divided = defaultdict(list, records)
        rest = divided.pop("", [])
        if "val" not in map(split_in, divided):  # with nothing to validate on
            rest += divided.pop("train", [])
        share = VAL_FRACTION if self.val_fraction is None else self.val_fraction
        folder = self.images or self.folder if self.captions_only else Path()
        originals = _originals({str(r.image_id): folder / r.image for r in rest}) if share else {}
        ordered = sorted(set(originals.values()), key=place)
        validation = {name for name in ordered if place(name) / 2**64 < share}
        validation = validation.union(ordered[:1]).difference(ordered[-1:])
        for record in rest:
            is_val = originals.get(str(record.image_id)) in validation
            divided["val" if is_val else "train"].append(record)
        return divided


def _originals(photos: dict[str, Path]) -> dict[str, str]:
    """The id of the photo that each is a copy of, by its bytes or its name, or its own id.

    Files of one exposure, such as IMG_1.HEIC and IMG_1.JPG, are copies.
    """
    by_name, by_size, by_content = (defaultdict[Any, list[str]](list) for _ in range(3))
    for name, photo in photos.items():
        by_name[COPY.sub("", name)].append(name)
        by_size[photo_size(photo)].append(name)
    found = {name: name for name in photos}
    for bare, names in by_name.items():
        if bare in photos and len(names) <= 1 + MOST_COPIES:
            found |= dict.fromkeys(names, bare)
    exposures = defaultdict(list)
    for name in photos:
        stem, suffix = os.path.splitext(name.lower())  # noqa: PTH122 - also of ids that are no paths
        exposures[stem if suffix in CAMERA_SUFFIXES else name].append(name)
    twins = {name: min(names) for names in exposures.values() for name in names}
    found = {name: twins[bare] for name, bare in found.items()}
    by_size.pop(None, None)
    for name in (name for names in by_size.values() if names[1:] for name in names):
        with suppress(InputError):  # whoever reads the photo says why it cannot be read
            by_content[photo_hash(photos[name])].append(found[name])
    first: dict[str, str] = {}
    for names in by_content.values():
        first |= dict.fromkeys(names, min(names, key=lambda name: (len(name), name)))
    found = {name: first.get(bare, bare) for name, bare in found.items()}
    return found if len(set(found.values())) > 1 else {name: name for name in photos}


class Joined(Reader):
    """The images of several data sets, one data set after the other.

    A split has the images of all data sets that have this split. An image's id is its own id behind
    the name of its data set's folder, such as ``flickr8k/1000268201_693b08cb0e``.

    Args:
        readers: different data sets.
        balanced: use at most as many images of a data set's split as those before it have, evenly
            spaced.
    """

    def __init__(self, readers: Sequence[Reader], balanced: bool = False) -> None:
        roots = [reader.root for reader in readers]
        super().__init__(" + ".join(map(str, roots)))
        names = [root.stem if root.suffix else root.name for root in roots]
        if len(set(names)) < len(names):
            names = [root.as_posix() for root in roots]
        if len(set(names)) < len(names) or not names:
            raise InputError(f"Joined: give different data sets, not {self.root}")
        self.readers = dict(zip(names, readers, strict=True))
        self.balanced = balanced

    def mean_score(self, scores: Mapping[int | str, float]) -> float:
        """The geometric mean of the data sets' mean scores, from scores by image id.

        It ranks models alike whatever scale the scores of a data set have.
        """
        means = []
        for name in self.readers:
            own = [score for image, score in scores.items() if str(image).startswith(f"{name}/")]
            means += [fmean(own)] if own else []
        return prod(means) ** (1 / len(means))

    @property
    def folders(self) -> list[Path]:
        return [folder for reader in self.readers.values() for folder in reader.folders]

    @property
    def splits(self) -> tuple[str, ...]:
        names = (split for reader in self.readers.values() for split in reader.splits)
        return in_order(map(split_name, names))

    def _load(self, split: str) -> Contents:
        joined = Contents([], [])
        for name, reader in self.readers.items():
            if reader.split_called(split) is not None:
                its = reader.contents(split)
                records, most = its.records, len(joined.records)
                if self.balanced and 0 < most < len(records):
                    records = [records[n * len(records) // most] for n in range(most)]
                joined.problems.extend(its.problems)
                joined.records.extend(
                    replace(record, image_id=f"{name}/{record.image_id}") for record in records
                )
        return joined


def parsed(
    rows: Iterable[tuple[str, Any]], parse: Callable[[Any], Parsed], problems: list[Problem]
) -> Iterator[Parsed]:
    """What `parse` makes of each row, which comes with its place; what it refuses is a problem."""
    for place, row in rows:
        try:
            found = parse(row)
        except (ValueError, RecursionError, InputError) as error:
            problems.append(Problem(MALFORMED, f"{place}: {error}"))
        else:
            yield found


def numbered(place: str, rows: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    """The rows with their places: ``captions.json: annotation 1`` and so on."""
    return ((f"{place} {number}", row) for number, row in enumerate(rows, start=1))


def field(row: Any, key: str, *types: type) -> Any:
    """`row[key]`; raises ValueError unless it is of one of the types."""
    if not isinstance(row, dict) or key not in row:
        raise ValueError(f"{shown(row)} has no {key!r}")
    if not isinstance(row[key], types) or isinstance(row[key], bool):
        expected = " or ".join(kind.__name__ for kind in types)
        raise ValueError(f"{key!r} is {shown(row[key])}, not {expected}")
    return row[key]


def listed(names: Iterable[object]) -> str:
    """Names for a message, which a broken file may have thousands of."""
    return ", ".join(map(str, names))[:200] or "none"
