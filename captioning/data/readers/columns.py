"""Which columns of a table have the photos, their captions and their splits."""

import json
import re
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from captioning.data.readers.reader import SPLITS, field, listed, split_name
from captioning.data.readers.rows import is_photo
from captioning.errors import InputError, shown

IMAGE_COLUMNS = (
    *("file_name", "filename", "file", "image_path", "file_path", "filepath", "path", "image_name"),
    *("image_file", "image", "img_path", "img", "photo", "picture", "image_id", "img_id", "id"),
)
"""Usual names of the column of the photos; the first one that looks like file names counts."""

CAPTION_COLUMNS = (
    *("caption", "captions", "caption_str", "comment", "comments", "text", "description"),
    *("sentence", "sentences", "report", "raw", "prompt", "alt_text", "alt"),
)
"""Usual names of the column of the captions; the first two count before all others."""

NUMBERED = re.compile(r"(captions?|comment|text|description|sentence)_?\d+")
SPLIT_COLUMNS = ("split", "set", "set_name", "subset", "partition")
NOT_CAPTIONS = re.compile(r"[\d.,:\s+-]*|\w+://\S*")  # numbers, dates, addresses

SAMPLE = 20  # rows read to guess what a column holds


class Columns(NamedTuple):
    """The columns that are read."""

    image: str
    captions: tuple[str, ...]
    split: str | None


class Row(NamedTuple):
    """A photo and the captions of one row."""

    name: str
    captions: tuple[str, ...]
    split: str | None


def plain(column: object) -> str:
    """A column's name without case, and with underscores: file_name for "File name"."""
    return re.sub(r"[\s-]+", "_", str(column).strip().lower())


def columns_of(
    file: Path,
    entries: list[tuple[str, Any]],
    chosen: str | None = None,
    image: str | None = None,
) -> Columns:
    """The columns to read.

    Args:
        file: for messages.
        entries: the rows with their places.
        chosen: the column of the captions; None to find it.
        image: the column of the photos; None to find it.

    Raises:
        InputError: no column has photos or captions, or it is not clear which one has captions.
    """
    objects = [entry for _, entry in entries if isinstance(entry, dict)]
    names = list(dict.fromkeys(name for entry in objects for name in entry))
    called = {plain(name): name for name in reversed(names)}
    values = {name: [v for e in objects[:SAMPLE] for v in _each(e.get(name))] for name in names}
    has = f"its columns are {listed(names)}"

    photos = [name for name in names if any(map(is_photo, values[name]))]
    usual = [called[name] for name in IMAGE_COLUMNS if name in called]
    image = image or next((n for n in (*usual, *photos) if n in photos), next(iter(usual), None))
    if image is None:
        raise InputError(f"{file}: no column of photos; {has}; call one of them file_name")

    split = next((called[name] for name in SPLIT_COLUMNS if name in called), None)
    if split is not None and plain(split) != "split":  # it may be another kind of set
        parts = {split_name(str(entry.get(split))) for entry in objects}
        split = split if parts <= set(SPLITS) else None

    if chosen is not None:
        if chosen not in names and plain(chosen) not in called:
            raise InputError(f"{file}: no column {chosen!r}; {has}; give one of these")
        return Columns(image, (chosen if chosen in names else called[plain(chosen)],), split)
    captions = _caption_columns([name for name in names if name not in (image, split)], values)
    if not captions:
        raise InputError(
            f"{file}: no column is clearly that of the captions; {has}; name it by "
            "--caption-column (in a configuration, the reader's caption_column)"
        )
    return Columns(image, captions, split)


def rows_in(entry: Any, columns: Columns) -> list[Row]:
    """The photos of a row, usually one, with its captions.

    Raises:
        ValueError: the row lacks a value, or one is not text.
    """
    photos = _each(field(entry, columns.image, str, list))
    values = [field(entry, name, str, list, dict) for name in columns.captions]
    texts = [text for value in values for text in _texts(value)]
    if len(columns.captions) > 1:  # a column for each caption: some photos have fewer
        texts = list(filter(None, texts)) or [""]
    split = None
    if columns.split is not None and columns.split in entry:
        split = split_name(field(entry, columns.split, str))
        if not split:
            raise ValueError(f"an empty {columns.split}")
    if not photos or not all(isinstance(name, str) and name.strip() for name in photos):
        raise ValueError(f"an empty {columns.image}")
    return [Row(PurePosixPath(name.strip()).as_posix(), tuple(texts), split) for name in photos]


def _caption_columns(names: list[str], values: dict[str, list[Any]]) -> tuple[str, ...]:
    """The caption columns; empty if they are ambiguous."""
    called = {plain(name): name for name in reversed(names)}
    for name in CAPTION_COLUMNS[:2]:
        if name in called:
            return (called[name],)
    if several := tuple(name for name in names if NUMBERED.fullmatch(plain(name))):
        return several
    usual = tuple(called[name] for name in CAPTION_COLUMNS if name in called)
    others = tuple(
        name
        for name in names
        if name and not plain(name).endswith("id") and plain(name) not in IMAGE_COLUMNS
        if any(isinstance(v, str) and not NOT_CAPTIONS.fullmatch(v) for v in values[name])
    )
    found = usual or others
    return found if len(found) == 1 else ()


def _each(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _texts(value: Any) -> list[str]:
    """The captions of a value: texts or objects such as {"raw": ..., "id": ...}, one or a list.

    A list may be written as JSON.
    """
    value = _inside(value)
    if isinstance(value, str) and value.startswith('["'):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return [str(value).strip()]
    texts = list(map(_inside, _each(value)))
    for text in texts:
        if not isinstance(text, str):
            raise ValueError(f"{shown(text)} is not a caption")
    return [text.strip() for text in texts] or [""]


def _inside(value: Any) -> Any:
    """What an object has under the usual name of captions; other values as they are."""
    if not isinstance(value, dict):
        return value
    return next((value[name] for name in CAPTION_COLUMNS if name in value), value)
