"""The rows of tables: CSV and its relatives, JSON lines, JSON, and shards."""

import csv
import io
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from captioning.data.images import IMAGE_SUFFIXES
from captioning.data.photo_shards import is_shard, shard_rows
from captioning.data.readers.reader import ALIASES
from captioning.errors import InputError
from captioning.untrusted import json_of, read_json, text_of

SEPARATORS = ",;\t|"
QUOTED = ",;"  # separators of files in which quotes enclose values; elsewhere they are text

REMEDY = "expected the name of a photo and its caption"

NUMBERED = re.compile(r"#\d+$")  # the end of a name that has the caption's number, a.jpg#0

Rows = Iterator[tuple[str, Any]]  # the place that messages name, and the values by column


def rows_of(file: Path) -> Rows:
    """The rows of a table, by its suffix.

    Raises:
        InputError: the file cannot be read or is malformed.
    """
    suffix = file.suffix.lower()
    if is_shard(file):
        return ((str(file.parent / row["file_name"]), row) for row in shard_rows(file))
    if suffix == ".jsonl":
        return _jsonl_rows(file)
    return _json_rows(file) if suffix == ".json" else _csv_rows(file)


def is_photo(value: object) -> bool:
    """Whether a value looks like the name of a photo, not its address in the web."""
    name = NUMBERED.sub("", value.strip().lower()) if isinstance(value, str) else ""
    return name.endswith(tuple(IMAGE_SUFFIXES)) and "://" not in name


def _csv_rows(file: Path) -> Rows:
    header, rows = _lines(file)
    named = next(filter(is_photo, header), None)
    if named is not None:  # the first line is a row already: columns get numbers
        rows = chain([(f"{file}: line 1", header)], rows)
        named, header = str(header.index(named) + 1), [str(i + 1) for i in range(len(header))]
    for place, values in rows:
        if len(values) == len(header) - 1 and re.match(r"\d+\s", values[-1]):
            # Flickr30k's results.csv lacks one separator: "2199200615.jpg| 4   A dog runs".
            values = [*values[:-1], *values[-1].split(maxsplit=1)]
        entry = _by_column(header, values, place)
        yield place, entry | ({named: NUMBERED.sub("", entry[named])} if named else {})


def _lines(file: str | Path) -> tuple[list[str], Iterator[tuple[str, list[str]]]]:
    """The values of the first line, and those of the others with their places."""
    text = text_of(file)
    first = re.sub(r'"[^"]*"', "", text.partition("\n")[0])
    separator = min(SEPARATORS, key=lambda s: first.find(s) if s in first else len(first))
    has_quotes = separator in QUOTED
    reader = csv.reader(
        io.StringIO(text, newline=""),
        strict=True,
        skipinitialspace=True,
        delimiter=separator,
        quoting=csv.QUOTE_MINIMAL if has_quotes else csv.QUOTE_NONE,
    )

    def lines() -> Iterator[tuple[str, list[str]]]:
        while True:
            start = reader.line_num + 1  # of a row that may have several lines
            try:
                values = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                raise InputError(
                    f"{file}: line {start} is not CSV ({error}); "
                    'write a quote inside a quoted caption as ""'
                ) from None
            if any(values):
                if not has_quotes:
                    values = list(map(_unquoted, values))
                yield f"{file}: line {start}", values

    rows = lines()
    _, header = next(rows, ("", []))
    return [column.strip() for column in header], rows


def _unquoted(value: str) -> str:
    """A value without the quotes around it, if they are no quotes of the text."""
    inside = value[1:-1].replace('""', "")
    if len(value) > 1 and value[0] == value[-1] == '"' and '"' not in inside:
        return value[1:-1].replace('""', '"')
    return value


def _by_column(header: list[str], values: list[str], place: str) -> dict[str, str]:
    if len(values) != len(header):
        raise InputError(
            f"{place} does not have the {len(header)} values of the first line; "
            'put a caption with commas in double quotes, "so, for example"'
        )
    return dict(zip(header, values, strict=True))


def _jsonl_rows(file: Path) -> Rows:
    for number, line in enumerate(text_of(file).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            yield f"{file}: line {number}", json_of(line)
        except ValueError as error:
            raise InputError(
                f"{file}: line {number} is not JSON ({error}); {REMEDY} in one object a line"
            ) from None


def _json_rows(file: Path) -> Rows:
    """The rows of a list, of a list "data" as TextCaps', or of lists by split as R2Gen's.

    A single object of names and captions is a row for each name.
    """
    content = read_json(file)
    lists: dict[str, Any] = {"": content}
    if isinstance(content, dict):
        lists = {"": content.get("data")}
        if content and all(key.lower() in ALIASES for key in content):
            lists = content
        elif content and all(map(is_photo, content)):
            rows = [{"file_name": name, "caption": text} for name, text in content.items()]
            lists = {"": rows}
    for split, rows in lists.items():
        if not isinstance(rows, list):
            raise InputError(f"{file}: no list of rows; {REMEDY} for each row")
        for number, row in enumerate(rows, start=1):
            place = f"{file}: {split} row {number}" if split else f"{file}: row {number}"
            yield place, {**row, "split": split} if split and isinstance(row, dict) else row
