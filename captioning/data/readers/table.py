"""Your own photos: a folder with a table of file names and captions."""

import csv
import hashlib
import io
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from captioning.data.readers.reader import OneFileReader
from captioning.data.records import Record
from captioning.errors import InputError
from captioning.numbers import ShareBelowOne
from captioning.untrusted import field, json_of, text_of

TABLES = ("captions.csv", "captions.jsonl")
REMEDY = "expected file_name and caption"

Row = tuple[str, str, str | None]  # file name, caption, split


class CaptionTable(OneFileReader):
    """Your own photos with a table, ``captions.csv`` or ``captions.jsonl``.

    The table has the columns file_name (relative to the photos' folder) and caption, and a row for
    each caption, so a photo may have several. An optional column split assigns photos to splits;
    without it, a hash of a photo's name decides, so photos keep their split when others are added.

    Args:
        root: the folder that holds the table, or the path of the table.
        images: folder of the photos; by default the folder of the table.
        val_fraction: share of the photos for validation, from 0 to below 1, if there is no column
            split. Unless it is 0, each split gets at least one of two or more photos.
    """

    def __init__(
        self, root: str | Path, images: str | Path | None = None, val_fraction: ShareBelowOne = 0.1
    ) -> None:
        super().__init__(root, images)
        self.val_fraction = val_fraction

    @classmethod
    def recognises(cls, root: Path) -> bool:
        """Whether `root` is a CSV or JSONL file, or holds one of the usual name."""
        if root.is_file():
            return root.suffix.lower() in (".csv", ".jsonl")
        return any((root / name).is_file() for name in TABLES)

    @cached_property
    def records(self) -> dict[str, list[Record]]:
        """The records of each split: those of the table's column, or train and val without it."""
        file = self._file(*TABLES)
        folder = file.parent if self.images is None else self.images
        is_csv = file.suffix.lower() != ".jsonl"
        entries = csv_entries(file, ("file_name", "caption")) if is_csv else _jsonl_entries(file)
        rows = [_row(entry, place) for place, entry in entries]
        if not rows:
            raise InputError(f"{file}: no captions; add rows of file_name and caption")
        names = sorted({name for name, _, _ in rows}, key=_place)
        validation = {name for name in names if _place(name) < self.val_fraction}
        if self.val_fraction > 0:
            validation = (validation | {names[0]}) - {names[-1]}
        captions: dict[tuple[str, str], list[str]] = defaultdict(list)
        for name, caption, split in rows:
            captions[split or ("val" if name in validation else "train"), name].append(caption)
        records = defaultdict(list)
        for (split, name), texts in captions.items():
            records[split].append(Record(folder / name, name, tuple(texts)))
        return records


def _place(name: str) -> float:
    """A hash of the name, spread evenly over 0..1; Python's own differs from run to run."""
    digest = hashlib.sha256(name.encode(errors="surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


def csv_entries(file: str | Path, columns: Sequence[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """The rows of a CSV file, each with the place that messages name.

    Raises:
        InputError: the file cannot be read, lacks one of the columns, or is malformed.
    """
    lines = io.StringIO(text_of(file), newline="")
    reader = csv.DictReader(lines, strict=True, skipinitialspace=True)
    try:
        found = reader.fieldnames or ()
        for column in columns:
            if column not in found:
                raise InputError(
                    f"{file}: no column {column!r}; its first line must be {','.join(columns)}"
                )
        for entry in reader:
            if None in entry or None in entry.values():
                raise InputError(
                    f"{file}: line {reader.line_num} does not have the {len(found)} values of the "
                    'first line; put a caption with commas in double quotes, "so, for example"'
                )
            yield f"{file}: line {reader.line_num}", entry
    except csv.Error as error:
        raise InputError(
            f"{file}: line {reader.line_num} is not CSV ({error}); "
            'write a quote inside a quoted caption as ""'
        ) from None


def _jsonl_entries(file: Path) -> Iterator[tuple[str, Any]]:
    for number, line in enumerate(text_of(file).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            yield f"{file}: line {number}", json_of(line)
        except ValueError as error:
            raise InputError(
                f"{file}: line {number} is not JSON ({error}); {REMEDY} in one object a line"
            ) from None


def _row(entry: Any, source: str) -> Row:
    name = field(entry, "file_name", str, source=source, remedy=REMEDY).strip()
    caption = field(entry, "caption", str, source=source, remedy=REMEDY).strip()
    split = None
    if "split" in entry:
        split = field(entry, "split", str, source=source, remedy="expected train, val or test")
        split = split.strip()
    if not name or split == "":
        missing = "split" if name else "file_name"
        raise InputError(f"{source} has an empty {missing}; fill it in, or remove the line")
    return PurePosixPath(name).as_posix(), caption, split
