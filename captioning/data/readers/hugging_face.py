"""Data sets of Hugging Face: Parquet files, and what `save_to_disk` writes."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from captioning.data.photo_files import Rows, holds_rows, rows_by_split
from captioning.data.readers.reader import Problem, Reader, Row
from captioning.data.readers.rows import rows_in
from captioning.data.records import Record
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

    def _read(self, problems: list[Problem]) -> dict[str, list[Record]]:
        splits = rows_by_split(Path(os.path.abspath(self.root)))  # noqa: PTH100 - keeps links
        rows: list[Row] = []
        for split, table in splits.items():
            with reading(self.root):
                entries = list(self._entries(split, table))
            photo = self.photo_column or next(iter(table.photos))
            rows += (
                row._replace(split=row.split or split)
                for row in rows_in(self.root, entries, problems, self.caption_column, photo)
            )
        return self._records(rows, self.root)

    def _entries(self, split: str, table: Rows) -> Iterator[tuple[str, dict[str, Any]]]:
        """The rows of a split with their places; absent texts are empty."""
        photo = self.photo_column or next(iter(table.photos))
        if photo not in table.photos:
            columns = ", ".join(table.photos)
            raise InputError(f"{self.root}: photos are in {columns}, none is called {photo!r}")
        suffix = f":{photo}" if self.photo_column else ""
        number = 0
        for batch in table.texts.iter(1000):
            for texts in batch.to_pylist():
                name = f"{split}/{number}{suffix}"
                filled = {key: "" if value is None else value for key, value in texts.items()}
                yield f"{self.root}: row {name}", {**filled, photo: name}
                number += 1

    def _photos(self, names: list[str], *_: Any) -> list[Path]:
        return [Path(name) if self.captions_only else self.root / name for name in names]
