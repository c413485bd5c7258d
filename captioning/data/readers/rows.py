"""The rows of tables: CSV and its relatives, JSON lines, JSON, and shards."""

import csv
import io
import json
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from captioning.data.images import IMAGE_SUFFIXES
from captioning.data.photo_shards import is_shard, shard_rows
from captioning.data.readers.reader import ALIASES, MALFORMED, Problem, numbered, parsed
from captioning.errors import InputError
from captioning.untrusted import read_json, text_of

SEPARATORS = ",;\t|"
QUOTED = ",;"  # separators of files in which quotes enclose values; elsewhere they are text

NUMBERED = re.compile(r"#\d+$")  # the end of a name that has the caption's number, a.jpg#0

Rows = Iterator[tuple[str, Any]]  # the place that messages name, and the values by column


def rows_of(file: Path, problems: list[Problem]) -> Rows:
    """The rows of a table, by its suffix; malformed ones are problems.

    Raises:
        InputError: the file cannot be read.
    """
    suffix = file.suffix.lower()
    if is_shard(file):
        return ((str(file.parent / row["file_name"]), row) for row in shard_rows(file))
    if suffix == ".jsonl":
        lines = numbered(f"{file}: line", text_of(file).split("\n"))
        return parsed((line for line in lines if line[1].strip()), json.loads, problems)
    return _json_rows(file) if suffix == ".json" else _csv_rows(file, problems)


def is_photo(value: object) -> bool:
    """Whether a value looks like the name of a photo, not its address in the web."""
    name = NUMBERED.sub("", value.strip().lower()) if isinstance(value, str) else ""
    return name.endswith(tuple(IMAGE_SUFFIXES)) and "://" not in name


def _csv_rows(file: Path, problems: list[Problem]) -> Rows:
    text = text_of(file)
    first = re.sub(r'"[^"]*"', "", text.partition("\n")[0])
    separator = min(SEPARATORS, key=lambda s: first.find(s) if s in first else len(first))
    lines = _lines(text, file, separator, problems)
    _, header = next(lines, ("", []))
    header = [column.strip() for column in header]
    named = next(filter(is_photo, header), None)
    if named is not None:  # the first line is a row already: columns get numbers
        lines = chain([(f"{file}: line 1", header)], lines)
        named, header = str(header.index(named) + 1), [str(i + 1) for i in range(len(header))]

    def by_column(values: list[str]) -> dict[str, str]:
        if len(values) == len(header) - 1 and re.match(r"\d+\s", values[-1]):
            # Flickr30k's results.csv lacks one separator: "2199200615.jpg| 4   A dog runs".
            values = [*values[:-1], *values[-1].split(maxsplit=1)]
        if len(values) != len(header):
            raise ValueError(
                f"{len(values)} values, where the first line has {len(header)}; put a caption with "
                'commas in double quotes, "so, for example"'
            )
        entry = dict(zip(header, values, strict=True))
        return entry | ({named: NUMBERED.sub("", entry[named])} if named else {})

    return parsed(lines, by_column, problems)


def _lines(
    text: str, file: Path, separator: str, problems: list[Problem]
) -> Iterator[tuple[str, list[str]]]:
    """The values of each row with its place; a row may have several lines."""
    has_quotes = separator in QUOTED
    reader = csv.reader(
        io.StringIO(text, newline=""),
        strict=True,
        skipinitialspace=True,
        delimiter=separator,
        quoting=csv.QUOTE_MINIMAL if has_quotes else csv.QUOTE_NONE,
    )
    while True:
        place = f"{file}: line {reader.line_num + 1}"
        try:
            values = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            advice = 'write a quote inside a quoted caption as ""'
            problems.append(Problem(MALFORMED, f"{place}: not CSV ({error}); {advice}"))
            continue
        if any(values):
            yield place, values if has_quotes else list(map(_unquoted, values))


def _unquoted(value: str) -> str:
    """A value without the quotes around it, if they are no quotes of the text."""
    inside = value[1:-1].replace('""', "")
    if len(value) > 1 and value[0] == value[-1] == '"' and '"' not in inside:
        return value[1:-1].replace('""', '"')
    return value


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
            raise InputError(f"{file}: no list of objects with the name of a photo and its caption")
        for place, row in numbered(f"{file}: {split} row" if split else f"{file}: row", rows):
            yield place, {**row, "split": split} if split and isinstance(row, dict) else row
