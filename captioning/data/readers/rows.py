"""Rows of photos and captions, from CSV and its relatives, JSON and JSON lines."""

import ast
import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from captioning.data.images import IMAGE_SUFFIXES
from captioning.data.readers.reader import MALFORMED, Problem, Row, field, listed, numbered, parsed
from captioning.data.splits import ALIASES, SPLITS, split_name
from captioning.errors import InputError, shown
from captioning.files import read_json, text_of

IMAGE_COLUMNS = (
    *("file_name", "filename", "file", "image_path", "file_path", "filepath", "path", "image_name"),
    *("image_file", "image", "img_path", "img", "photo", "picture", "image_id", "img_id", "id"),
)
"""Names of the column of the photos; the first one counts."""

CAPTION_COLUMNS = (
    *("caption", "captions", "caption_str", "comment", "comments", "text", "description"),
    *("sentence", "sentences", "report", "raw", "prompt", "alt_text", "alt", "txt"),
)
"""Names of the column of the captions; the first two count before all others."""

SPLIT_COLUMNS = ("split", "set", "set_name", "subset", "partition")
NUMBERED_COLUMN = re.compile(r"(captions?|comment|text|description|sentence)_?\d+")
NUMBER = re.compile(r"#\d+$")  # the end of a name that has the caption's number, a.jpg#0

STRING = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
"""A string as Python writes it."""

SEPARATORS = ",;\t|"
QUOTED = ",;"  # separators of files in which quotes enclose values; elsewhere they are text


def rows_of(
    file: Path,
    problems: list[Problem],
    caption_column: str | None = None,
    photo_column: str | None = None,
) -> list[Row]:
    """The rows of a table; malformed ones are added to the problems.

    Raises:
        InputError: the file cannot be read, or it is not clear which column has photos or captions.
    """
    faults: list[Problem] = []
    found: Iterator[tuple[str, Any]]
    if file.suffix.lower() == ".jsonl":
        found = json_lines(file, faults)
    else:
        found = _json_rows(file) if file.suffix.lower() == ".json" else _csv_rows(file, faults)
    entries = list(found)
    if not entries:
        advice = f"{file}: no captions; add rows of file_name and caption"
        raise InputError(faults[0].name if faults else advice)
    rows = rows_in(file, entries, faults, caption_column, photo_column)
    problems += faults
    return rows


def rows_in(
    file: Path,
    entries: Sequence[tuple[str, Any]],
    problems: list[Problem],
    caption_column: str | None = None,
    photo_column: str | None = None,
) -> list[Row]:
    """The rows of a table's entries, which come with their places; see `rows_of`."""
    objects = [entry for _, entry in entries if isinstance(entry, dict)]
    parse = partial(_rows, *_columns(file, objects, caption_column, photo_column))
    return [row for several in parsed(entries, parse, problems) for row in several]


def names_photo(value: object) -> bool:
    """Whether a value looks like the name of a photo, not its address in the web."""
    name = NUMBER.sub("", value.strip().lower()) if isinstance(value, str) else ""
    return name.endswith(tuple(IMAGE_SUFFIXES)) and "://" not in name


def column_name(column: object) -> str:
    """A column's name without case, and with underscores: file_name for "File name"."""
    return re.sub(r"[\s-]+", "_", str(column).strip().lower())


def has_columns(names: Iterable[str]) -> bool:
    """Whether there are usual names of columns of photos and of captions."""
    known = set(map(column_name, names))
    return not known.isdisjoint(IMAGE_COLUMNS) and not known.isdisjoint(CAPTION_COLUMNS)


def _csv_rows(file: Path, problems: list[Problem]) -> Iterator[tuple[str, dict[str, str]]]:
    text = text_of(file)
    first = re.sub(r'"[^"]*"', "", text.partition("\n")[0])
    separator = min(SEPARATORS, key=lambda s: first.find(s) if s in first else len(first))
    reader = csv.reader(
        io.StringIO(text, newline=""),
        strict=True,
        skipinitialspace=True,
        delimiter=separator,
        quoting=csv.QUOTE_MINIMAL if separator in QUOTED else csv.QUOTE_NONE,
    )
    header: list[str] = []
    while True:
        place = f"{file}: line {reader.line_num + 1}"  # a row may have several lines
        try:
            values = next(reader, None)
        except csv.Error as error:
            advice = 'write a quote inside a quoted caption as ""'
            problems.append(Problem(MALFORMED, f"{place}: not CSV ({error}); {advice}"))
            continue
        if values is None:
            return
        if not any(values):
            continue
        if separator not in QUOTED:
            values = list(map(_unquoted, values))
        if not header:
            header = [column.strip() for column in values]
            if not names_photo(header[0]):
                continue
            header = _default_header(len(header))  # the first line is a row already
        if len(values) == len(header) - 1 and re.match(r"\d+\s", values[-1]):
            # Flickr30k's results.csv lacks one separator: "2199200615.jpg| 4   A dog runs".
            values[-1:] = values[-1].split(maxsplit=1)
        if len(values) == len(header):
            yield place, dict(zip(header, values, strict=True))
        else:
            counts = f"{len(values)} values, where the first line has {len(header)}"
            advice = 'put a caption with commas in double quotes, "so, for example"'
            problems.append(Problem(MALFORMED, f"{place}: {counts}; {advice}"))


def _default_header(count: int) -> list[str]:
    """The columns of a table without a header: its photos, and its captions if it has two."""
    return ["file_name", "caption" if count == 2 else "2", *map(str, range(3, count + 1))][:count]


def _unquoted(value: str) -> str:
    """A value without the quotes around it, if they are no quotes of the text."""
    inside = re.fullmatch(r'"((?:[^"]|"")*)"', value)
    return inside[1].replace('""', '"') if inside else value


def json_lines(file: Path, problems: list[Problem]) -> Iterator[tuple[str, Any]]:
    """The place and the value of each line; lines that are not JSON are problems."""
    for place, line in numbered(f"{file}: line", text_of(file).split("\n")):
        if line.strip():
            yield from ((place, value) for value in parsed([(place, line)], json.loads, problems))


def _json_rows(file: Path) -> Iterator[tuple[str, Any]]:
    """The rows of a list, of a list "data" as TextCaps', or of lists by split as R2Gen's.

    A single object of names and captions is a row for each name.
    """
    content = read_json(file)
    lists: dict[str, Any] = {"": content}
    if isinstance(content, dict):
        lists = {"": content.get("data")}
        if content and all(key.lower() in ALIASES for key in content):
            lists = content
        elif content and all(map(names_photo, content)):
            lists = {"": [{"file_name": n, "caption": text} for n, text in content.items()]}
    for split, rows in lists.items():
        if not isinstance(rows, list):
            raise InputError(f"{file}: no list of objects with the name of a photo and its caption")
        for place, row in numbered(f"{file}: {split} row" if split else f"{file}: row", rows):
            yield place, {**row, "split": split} if split and isinstance(row, dict) else row


def _columns(
    file: Path,
    entries: list[dict[str, Any]],
    caption_column: str | None,
    photo_column: str | None,
) -> tuple[str, list[str], str | None]:
    """The columns of the photo, the captions and the split, by their names."""
    names = list(dict.fromkeys(name for entry in entries for name in entry))
    by_column_name = {column_name(name): name for name in reversed(names)}
    table = f"{file} with the columns {listed(names)}"

    def named(column: str) -> str:
        if column not in names and column_name(column) not in by_column_name:
            raise InputError(f"{table}: none is called {column!r}; give one of these")
        return column if column in names else by_column_name[column_name(column)]

    usual_photos = [by_column_name[name] for name in IMAGE_COLUMNS if name in by_column_name]
    if photo_column is None and not usual_photos:
        raise InputError(
            f"{table}: none is that of the photos; call it file_name, or name it by --photo-column"
        )
    image = named(photo_column) if photo_column is not None else usual_photos[0]

    split = next((by_column_name[name] for name in SPLIT_COLUMNS if name in by_column_name), None)
    if split is not None and column_name(split) != "split":  # it may be another kind of set
        splits = {split_name(str(entry.get(split))) for entry in entries}
        split = split if splits <= set(SPLITS) else None

    if caption_column is not None:
        return image, [named(caption_column)], split
    usual = [by_column_name[name] for name in CAPTION_COLUMNS if name in by_column_name]
    numbered_columns = [name for name in names if NUMBERED_COLUMN.fullmatch(column_name(name))]
    if usual and column_name(usual[0]) in CAPTION_COLUMNS[:2]:
        return image, usual[:1], split
    if not numbered_columns and len(usual) != 1:
        count = "several are" if usual else "none is"
        raise InputError(
            f"{table}: {count} called as captions usually are (caption, text, comment, ...); name "
            "that of the captions by --caption-column (in a configuration, the reader's "
            "caption_column)"
        )
    return image, numbered_columns or usual, split


def _rows(image: str, captions: list[str], split: str | None, entry: Any) -> list[Row]:
    photos = _each(field(entry, image, str, list))
    texts = [t for name in captions for t in _texts(field(entry, name, str, list, dict))]
    if len(captions) > 1:  # a column for each caption: some photos have fewer
        texts = list(filter(None, texts))
    part = None
    if split is not None and split in entry:
        part = split_name(field(entry, split, str))
        if not part:
            raise ValueError(f"an empty {split}")
    if not photos or not all(isinstance(name, str) and name.strip() for name in photos):
        raise ValueError(f"an empty {image}")
    names = (NUMBER.sub("", name) if names_photo(name) else name for name in map(str.strip, photos))
    paths = (PurePosixPath(name).as_posix() for name in names)
    return [Row(path, texts or [""], part, path) for path in paths]


def _each(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _texts(value: Any) -> list[str]:
    """The captions of a value: texts or objects such as {"raw": ..., "id": ...}, one or a list.

    A list may be written as JSON, or as Python writes it, which pandas puts into tables.
    """
    if isinstance(value, list):
        return [text for part in value for text in _texts(part)]
    if isinstance(value, dict) and (names := [n for n in CAPTION_COLUMNS if n in value]):
        return _texts(value[names[0]])
    if not isinstance(value, str):
        raise ValueError(f"{shown(value)} is not a caption")
    text = value.strip()
    if text.startswith(('["', "['")):
        with suppress(ValueError, RecursionError):
            return _texts(json.loads(text))
        with suppress(ValueError, SyntaxError):
            if re.fullmatch(rf"\[(?:{STRING})(?:, (?:{STRING}))*\]", text):
                return [ast.literal_eval(caption) for caption in re.findall(STRING, text)]
        raise ValueError(f"{shown(value)} is not a list of captions; write it as JSON")
    return [text]
