"""Which columns of a table have the photos, their captions and their splits."""

import json
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from captioning.data.readers.reader import LONGEST, SPLITS, split_name
from captioning.data.readers.rows import REMEDY, is_photo
from captioning.errors import InputError
from captioning.untrusted import field, short

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
    if not names:
        place, entry = entries[0]
        raise InputError(f"{place}: {short(entry)} is not an object; {REMEDY}")
    called = {plain(name): name for name in reversed(names)}
    values = {name: [v for e in objects[:SAMPLE] for v in _each(e.get(name))] for name in names}
    listed = f"its columns are {', '.join(names)[:LONGEST]}"

    photos = [name for name in names if any(map(is_photo, values[name]))]
    usual = [called[name] for name in IMAGE_COLUMNS if name in called]
    found = next((n for n in (*usual, *photos) if n in photos), next(iter(usual), None))
    image = image or found
    if image is None:
        raise InputError(f"{file}: no column of photos; {listed}; call one of them file_name")

    split = next((called[name] for name in SPLIT_COLUMNS if name in called), None)
    if split is not None and plain(split) != "split":  # it may be another kind of set
        parts = {split_name(str(entry.get(split))) for entry in objects}
        split = split if parts <= set(SPLITS) else None

    if chosen is not None:
        if chosen not in names and plain(chosen) not in called:
            raise InputError(f"{file}: no column {chosen!r}; {listed}; give one of these")
        return Columns(image, (chosen if chosen in names else called[plain(chosen)],), split)
    captions = _caption_columns([name for name in names if name not in (image, split)], values)
    if not captions:
        raise InputError(
            f"{file}: no column is clearly that of the captions; {listed}; name it by "
            "--caption-column (in a configuration, the reader's caption_column)"
        )
    return Columns(image, captions, split)


def rows_in(entry: Any, columns: Columns, place: str) -> Iterator[Row]:
    """The photos of a row, usually one, with its captions.

    Raises:
        InputError: the row lacks a value, or one is not text.
    """
    get = partial(field, entry, source=place, remedy=REMEDY)
    photos = get(columns.image, str, list)
    values = (get(name, str, list, dict) for name in columns.captions)
    texts = [text for value in values for text in _texts(value, place)]
    if len(columns.captions) > 1:  # a column for each caption: some photos have fewer
        texts = list(filter(None, texts)) or [""]
    split = None
    if columns.split is not None and columns.split in entry:
        split = split_name(get(columns.split, str))
    for name in _each(photos):
        if not isinstance(name, str) or not name.strip() or split == "":
            empty = columns.split if split == "" else columns.image
            raise InputError(f"{place} has an empty {empty}; fill it in, or remove the row")
        yield Row(PurePosixPath(name.strip()).as_posix(), tuple(texts), split)


def _caption_columns(names: list[str], values: dict[str, list[Any]]) -> tuple[str, ...]:
    """The caption columns; empty if they are ambiguous."""
    called = {plain(name): name for name in reversed(names)}
    for name in CAPTION_COLUMNS[:2]:
        if name in called:
            return (called[name],)
    if numbered := tuple(name for name in names if NUMBERED.fullmatch(plain(name))):
        return numbered
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


def _texts(value: Any, place: str) -> list[str]:
    """The captions of a value: texts or objects such as {"raw": ..., "id": ...}, one or a list.

    A list may be written as JSON.
    """
    value = _inside(value)
    if isinstance(value, str):
        if not value.startswith('["'):
            return [value.strip()]
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return [str(value).strip()]
    texts = list(map(_inside, value)) if isinstance(value, list) else [value]
    for text in texts:
        if not isinstance(text, str):
            raise InputError(f"{place}: {short(text)} is not a caption; {REMEDY}")
    return [text.strip() for text in texts] or [""]


def _inside(value: Any) -> Any:
    """What an object has under the usual name of captions; other values as they are."""
    if not isinstance(value, dict):
        return value
    return next((value[name] for name in CAPTION_COLUMNS if name in value), value)
