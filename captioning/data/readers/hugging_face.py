"""Data sets of Hugging Face: Parquet files, and what `save_to_disk` writes."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from captioning.data.photo_files import columns_by_split, holds_rows
from captioning.data.readers.data_set import DataSet, Problem
from captioning.data.readers.fields import Entry
from captioning.data.readers.reader import Reader, Row
from captioning.data.readers.rows import parse_table
from captioning.errors import InputError, reading


class HuggingFace(Reader):
    """Rows of photos and captions, read by the library `datasets` (extra ``datasets``).

    The photos are the column called image, else the first one of images or bytes; captions are
    found as by `CaptionTable`. Splits are called as in the data set; a column split comes first.
    The id of a photo is its split and its number there, such as ``train/17``, or
    ``train/17:photo`` if a column is given.

    Args:
        root: a folder of Parquet files as the Hub has them, one such file, or a folder that
            ``save_to_disk`` has written.
        val_fraction: see `Reader`.
        caption_column: the column of the captions, if its name leaves doubt.
        photo_column: the column of the photos, if there are several.
    """

    def __init__(
        self,
        root: str | Path,
        val_fraction: float | None = None,
        caption_column: str | None = None,
        photo_column: str | None = None,
    ) -> None:
        super().__init__(root, val_fraction=val_fraction)
        self.folder = self.root  # of the photos' paths, also if it is a file
        self.caption_column, self.photo_column = caption_column, photo_column

    @classmethod
    def recognises(cls, root: Path) -> bool:
        return holds_rows(root, "*-of-*")

    @classmethod
    def resembles(cls, root: Path) -> bool:
        return holds_rows(root)

    def read(self) -> DataSet:
        splits = columns_by_split(Path(os.path.abspath(self.root)))  # noqa: PTH100 - keeps links
        rows: list[Row] = []
        problems: list[Problem] = []
        for split, split_rows in splits.items():
            photo_column = self.photo_column or next(iter(split_rows.photos))
            if photo_column not in split_rows.photos:
                columns = ", ".join(split_rows.photos)
                raise InputError(
                    f"{self.root}: photos are in {columns}, none is called {photo_column!r}"
                )
            with reading(self.root):
                entries = list(self._entries(split, split_rows.texts, photo_column))
            table = parse_table(self.root, entries, self.caption_column, photo_column, split)
            rows += (row._replace(split=row.split or split) for row in table.rows)
            problems += table.problems
        return self.make_data_set(self.make_records(rows, self.root), problems)

    def _entries(self, split: str, texts: Any, photo_column: str) -> Iterator[Entry]:
        """The rows of a split; absent texts are empty."""
        suffix = f":{photo_column}" if self.photo_column else ""
        number = 0
        for batch in texts.iter(1000):
            for row in batch.to_pylist():
                name = f"{split}/{number}{suffix}"
                columns = {column: text for column, text in row.items() if text is not None}
                empty = dict.fromkeys(row, "")
                yield Entry(f"{self.root}: row", name, {**empty, **columns, photo_column: name})
                number += 1

    def photo_paths(
        self,
        names: list[str],
        source: Path,
        folders: Sequence[Path] = (),
        *,
        split: str | None = None,
        required: bool = True,
    ) -> list[Path]:
        return [Path(name) if self.captions_only else self.root / name for name in names]
