"""Your own photos: a folder with a table of file names and captions."""

import csv
import hashlib
import io
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path, PurePosixPath

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
        rows = list(_jsonl_rows(file) if file.suffix.lower() == ".jsonl" else _csv_rows(file))
        if not rows:
            raise InputError(f"{file}: no captions; add rows of file_name and caption")
        validation = self._validation({name for name, _, _ in rows})
        captions: dict[tuple[str, str], list[str]] = defaultdict(list)
        for name, caption, split in rows:
            captions[split or ("val" if name in validation else "train"), name].append(caption)
        records = defaultdict(list)
        for (split, name), texts in captions.items():
            records[split].append(Record(folder / name, name, tuple(texts)))
        return records

    def _validation(self, names: set[str]) -> set[str]:
        """The names whose hash, spread evenly over 0..1, lies below `val_fraction`."""
        places = {name: _place(name) for name in names}
        chosen = {name for name in names if places[name] < self.val_fraction}
        ranked = sorted(names, key=lambda name: places[name])
        if self.val_fraction > 0 and len(names) > 1:
            return (chosen | {ranked[0]}) - {ranked[-1]}
        return chosen if len(names) > 1 else set()


def _place(name: str) -> float:
    # Python's own hash() differs from run to run.
    return (
        int.from_bytes(hashlib.sha256(name.encode(errors="surrogatepass")).digest()[:8], "big")
        / 2**64
    )


def _csv_rows(file: Path) -> Iterator[Row]:
    for place, entry in csv_entries(file, ("file_name", "caption")):
        yield _row(entry, place)


def csv_entries(file: str | Path, columns: Sequence[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """The rows of a CSV file by its columns, each with the place that messages name.

    Args:
        file: its first line names its columns.
        columns: that it must have.

    Raises:
        InputError: the file cannot be read, lacks a column, or is malformed.
    """
    reader = csv.DictReader(
        io.StringIO(text_of(file), newline=""), strict=True, skipinitialspace=True
    )
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


def _jsonl_rows(file: Path) -> Iterator[Row]:
    for number, line in enumerate(text_of(file).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            entry = json_of(line)
        except ValueError as error:
            raise InputError(
                f"{file}: line {number} is not JSON ({error}); {REMEDY} in one object a line"
            ) from None
        yield _row(entry, f"{file}: line {number}")


def _row(entry: object, source: str) -> Row:
    name = field(entry, "file_name", str, source=source, remedy=REMEDY).strip()
    caption = field(entry, "caption", str, source=source, remedy=REMEDY).strip()
    split = None
    if isinstance(entry, dict) and "split" in entry:
        split = field(entry, "split", str, source=source, remedy="expected train, val or test")
        split = split.strip()
    if not name or split == "":
        missing = "split" if name else "file_name"
        raise InputError(f"{source} has an empty {missing}; fill it in, or remove the line")
    return PurePosixPath(name).as_posix(), caption, split
