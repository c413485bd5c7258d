"""Rows of photos and captions, from CSV and its relatives, JSON and JSON lines."""

import ast
import csv
import io
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any

from captioning.data.images import IMAGE_SUFFIXES
from captioning.data.photo_files import PARQUET, parquet_rows
from captioning.data.readers.data_set import MALFORMED, Problem
from captioning.data.readers.fields import Entry, field, numbered, parse_entries, shown_names
from captioning.data.readers.reader import Row
from captioning.data.splits import ALIASES, SPLITS, split_name
from captioning.errors import InputError, format_value
from captioning.files import read_json, read_text

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

MEASURE_COLUMNS = {"id", "index", "number", "count", "length", "score", "model", "type", "url"}
"""Words of columns that say something about captions, such as caption_id."""

PALIGEMMA = {"prefix", "suffix"}
"""Columns of PaliGemma's prompts and of the captions that answer them."""

DECISION_COLUMNS = {"file_name", "caption", "decision", "before"}
"""Columns of what was decided on the page of `captioning review`."""

CAPTION_PROMPT = re.compile(r"(?i)\W*(cap|describ|$)")
"""What asks for a caption: "caption en", "describe the photo", nothing."""

SPLIT_COLUMNS = ("split", "set", "set_name", "subset", "partition")
NUMBERED_COLUMN = re.compile(r"(captions?|comment|text|description|sentence)_?\d+")
NUMBER = re.compile(r"#\d+$")  # the end of a name that has the caption's number, a.jpg#0

JSON_LINES = (".jsonl", ".ndjson")
"""Suffixes of files with a JSON value in each line."""

STRING = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
"""A string as Python writes it."""

SEPARATORS = ",;\t|"
QUOTED = ",;"  # separators of files in which quotes enclose values; elsewhere they are text


@dataclass(frozen=True)
class TableRows:
    """The rows of a table, and the problems of those that are left out."""

    rows: list[Row]
    problems: list[Problem]


@dataclass(frozen=True)
class Columns:
    """The columns of a table that count.

    Attributes:
        photo: that of the photos' names.
        captions: those of the captions.
        split: that of the splits; None if there is none.
        prompt: that of what the captions answer to, as PaliGemma's prefix; None if there is none.
        decision: that of a review's decisions, of which drop leaves a caption out; None if there is
            none.
    """

    photo: str
    captions: list[str]
    split: str | None
    prompt: str | None = None
    decision: str | None = None


def read_table(
    file: Path, caption_column: str | None = None, photo_column: str | None = None
) -> TableRows:
    """Read a table: CSV and its relatives, JSON, JSON lines or Parquet.

    Raises:
        InputError: the file cannot be read, or it is not clear which column has photos or captions.
    """
    suffix = file.suffix.lower()
    problems: list[Problem] = []
    if suffix == ".json":
        entries = _read_json_list(file)
    elif suffix in JSON_LINES:
        entries, problems = parse_json_lines(file, read_text(file))
    elif suffix == PARQUET:
        entries = list(numbered(f"{file}: row", parquet_rows(file)))
    else:
        entries, problems = _read_csv(file)
    if not entries:
        advice = f"{file}: no captions; add rows of file_name and caption"
        raise InputError(problems[0].name if problems else advice)
    parsed = parse_table(file, entries, caption_column, photo_column)
    return TableRows(parsed.rows, problems + parsed.problems)


def parse_table(
    source: Path,
    entries: Sequence[Entry],
    caption_column: str | None = None,
    photo_column: str | None = None,
    split: str | None = None,
) -> TableRows:
    """Parse the entries of a table; `split` is that of the problems. See `read_table`."""
    objects = [entry.value for entry in entries if isinstance(entry.value, dict)]
    columns = find_columns(source, objects, caption_column, photo_column)
    rows_of_entries, problems = parse_entries(entries, partial(_parse_row, columns), split)
    return TableRows(list(chain.from_iterable(rows_of_entries)), problems)


def is_photo_name(value: object) -> bool:
    """Whether a value looks like the name of a photo, not its address in the web."""
    name = NUMBER.sub("", value.strip().lower()) if isinstance(value, str) else ""
    return name.endswith(tuple(IMAGE_SUFFIXES)) and "://" not in name


def column_name(column: object) -> str:
    """A column's name without case, and with underscores: file_name for "File name"."""
    return re.sub(r"[\s-]+", "_", str(column).strip().lower())


def has_caption_word(column: object) -> bool:
    """Whether a column is called as captions are, with a prefix or suffix: blip_caption."""
    words = column_name(column).split("_")
    is_name = len(words) <= 3 and MEASURE_COLUMNS.isdisjoint(words)
    return is_name and not set(CAPTION_COLUMNS[:2]).isdisjoint(words)


def has_columns(names: Iterable[str]) -> bool:
    """Whether there are usual names of columns of photos and of captions."""
    column_names = set(map(column_name, names))
    has_photos = not column_names.isdisjoint(IMAGE_COLUMNS)
    has_captions = not column_names.isdisjoint(CAPTION_COLUMNS) or column_names >= PALIGEMMA
    return has_photos and (has_captions or any(map(has_caption_word, column_names)))


def parse_json_lines(file: Path, text: str) -> tuple[list[Entry], list[Problem]]:
    """The value of each line of a file's text; lines that are not JSON are problems."""
    lines = [line for line in numbered(f"{file}: line", text.split("\n")) if line.value.strip()]
    entries: list[Entry] = []
    problems: list[Problem] = []
    for line in lines:
        values, problems_of_line = parse_entries([line], json.loads)
        entries += (line._replace(value=value) for value in values)
        problems += problems_of_line
    return entries, problems


def _read_csv(file: Path) -> tuple[list[Entry], list[Problem]]:
    """The rows as dictionaries by column; those with too few or too many values are problems."""
    entries: list[Entry] = []
    problems: list[Problem] = []
    header: list[str] = []
    for line in csv_lines(file, read_text(file)):
        values = line.value
        if isinstance(values, csv.Error):
            advice = 'write a quote inside a quoted caption as ""'
            problems.append(Problem(MALFORMED, f"{line.place}: not CSV ({values}); {advice}"))
            continue
        if not header:
            header, is_row = header_of(values)
            if not is_row:
                continue
        if len(values) == len(header) - 1 and re.match(r"\d+\s", values[-1]):
            # Flickr30k's results.csv lacks one separator: "2199200615.jpg| 4   A dog runs".
            values[-1:] = values[-1].split(maxsplit=1)
        if len(values) == len(header):
            entries.append(line._replace(value=dict(zip(header, values, strict=True))))
        else:
            counts = f"{len(values)} values, where the first line has {len(header)}"
            advice = 'put a caption with commas in double quotes, "so, for example"'
            problems.append(Problem(MALFORMED, f"{line.place}: {counts}; {advice}"))
    return entries, problems


def csv_separator(text: str) -> str:
    """What separates the values of a table, by its first line."""
    first_line = re.sub(r'"[^"]*"', "", text.partition("\n")[0])
    positions = {
        separator: first_line.find(separator) for separator in SEPARATORS if separator in first_line
    }
    return min(positions, key=lambda separator: positions[separator], default=SEPARATORS[0])


def csv_lines(file: Path, text: str) -> Iterator[Entry]:
    """The values of each line that is not empty, or the error of one that is not CSV."""
    separator = csv_separator(text)
    reader = csv.reader(
        io.StringIO(text, newline=""),
        strict=True,
        skipinitialspace=True,
        delimiter=separator,
        quoting=csv.QUOTE_MINIMAL if separator in QUOTED else csv.QUOTE_NONE,
    )
    while True:
        number = reader.line_num + 1  # a row may have several lines
        try:
            values = next(reader, None)
        except csv.Error as error:
            yield Entry(f"{file}: line", number, error)
            continue
        if values is None:
            return
        if any(values):
            values = values if separator in QUOTED else list(map(_unquoted, values))
            yield Entry(f"{file}: line", number, values)


def csv_cell_pattern(separator: str, column: int) -> re.Pattern[str]:
    """Matches a row of a CSV text up to its cell of a column, which is group 1."""
    cell = rf"[^{separator}\r\n]*+"
    if separator in QUOTED:
        cell = rf'(?: *+"(?:[^"]|"")*+")?{cell}'
    return re.compile(rf"(?:{cell}[{separator}]){{{column}}}({cell})")


def header_of(values: Sequence[str]) -> tuple[list[str], bool]:
    """The columns of a table by its first line, and whether that is a row: it names a photo.

    Columns of one name are numbered: of two that are called caption, both hold captions.
    A table without a header has a column of photos, and if it has two, one of captions.
    """
    header, count = [column.strip() for column in values], len(values)
    if not is_photo_name(header[0]):
        return _numbered(header), False
    second = "caption" if count == 2 else "2"
    return ["file_name", second, *map(str, range(3, count + 1))][:count], True


def _numbered(columns: Sequence[str]) -> list[str]:
    """Number columns of one name, by numbers that give no column's name."""
    numbers = {name: itertools.count(1) for name in columns}
    numbered = []
    for name in columns:
        unique_name = name
        while name and columns.count(name) > 1 and unique_name in columns:
            unique_name = f"{name} {next(numbers[name])}"
        numbered.append(unique_name)
    return numbered


def _unquoted(value: str) -> str:
    """A value without the quotes around it, if they are no quotes of the text."""
    match = re.fullmatch(r'"((?:[^"]|"")*)"', value)
    return match[1].replace('""', '"') if match else value


def _read_json_list(file: Path) -> list[Entry]:
    """The elements of a list, of a list "data" as TextCaps', or of lists by split as R2Gen's.

    A single object of names and captions is a row for each name. Names may lack the suffix, and
    captions may be objects, as kohya's.
    """
    content = read_json(file)
    if isinstance(content, dict) and content:
        if all(key.lower() in ALIASES for key in content):
            return _read_lists_by_split(file, content)
        if all(map(is_photo_name, content)) or all(map(_has_captions, content.values())):
            content = [{"file_name": name, "caption": text} for name, text in content.items()]
        else:
            content = content.get("data")
    _check_list(file, content)
    return list(numbered(f"{file}: row", content))


def _has_captions(value: Any) -> bool:
    """Whether a value is a caption, a list of captions or an object with some."""
    if isinstance(value, dict):
        return not value.keys().isdisjoint(CAPTION_COLUMNS)
    return isinstance(value, str) or (
        isinstance(value, list) and all(isinstance(text, str) for text in value)
    )


def _read_lists_by_split(file: Path, lists: dict[str, Any]) -> list[Entry]:
    entries: list[Entry] = []
    for split, rows in lists.items():
        _check_list(file, rows)
        for entry in numbered(f"{file}: {split} row", rows):
            if isinstance(entry.value, dict):
                entry = entry._replace(value={**entry.value, "split": split})
            entries.append(entry)
    return entries


def _check_list(file: Path, rows: Any) -> None:
    if not isinstance(rows, list):
        raise InputError(f"{file}: no list of objects with the name of a photo and its caption")


def find_columns(
    source: Path,
    rows: list[dict[str, Any]],
    caption_column: str | None,
    photo_column: str | None,
) -> Columns:
    """The columns of the photo, the captions and the split, by their names."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    names_by_usual_name = {column_name(name): name for name in reversed(names)}
    table = f"{source} with the columns {shown_names(names)}"

    def column_called(column: str) -> str:
        if column not in names and column_name(column) not in names_by_usual_name:
            raise InputError(f"{table}: none is called {column!r}; give one of these")
        return column if column in names else names_by_usual_name[column_name(column)]

    def usual_columns(usual_names: Iterable[str]) -> list[str]:
        return [names_by_usual_name[name] for name in usual_names if name in names_by_usual_name]

    photo_columns = usual_columns(IMAGE_COLUMNS)
    if photo_column is None and not photo_columns:
        raise InputError(
            f"{table}: none is that of the photos; call it file_name, or name it by --photo-column"
        )
    photo = photo_columns[0] if photo_column is None else column_called(photo_column)

    split = next(iter(usual_columns(SPLIT_COLUMNS)), None)
    if split is not None and column_name(split) != "split":  # it may be another kind of set
        values = {split_name(str(row.get(split))) for row in rows}
        split = split if values <= set(SPLITS) else None

    is_review = names_by_usual_name.keys() >= DECISION_COLUMNS
    decision = names_by_usual_name["decision"] if is_review else None
    if caption_column is not None:
        return Columns(photo, [column_called(caption_column)], split, decision=decision)
    caption_columns = usual_columns(CAPTION_COLUMNS)
    numbered_columns = [name for name in names if NUMBERED_COLUMN.fullmatch(column_name(name))]
    if caption_columns and column_name(caption_columns[0]) in CAPTION_COLUMNS[:2]:
        return Columns(photo, caption_columns[:1], split, decision=decision)
    if not numbered_columns and not caption_columns:
        if names_by_usual_name.keys() >= PALIGEMMA:
            columns = [names_by_usual_name[name] for name in ("suffix", "prefix")]
            return Columns(photo, columns[:1], split, prompt=columns[1])
        caption_columns = [name for name in names if has_caption_word(name)]
    if not numbered_columns and len(caption_columns) != 1:
        count = "several are" if caption_columns else "none is"
        raise InputError(
            f"{table}: {count} called as captions usually are (caption, text, comment, ...); name "
            "that of the captions by --caption-column (in a configuration, the reader's "
            "caption_column)"
        )
    return Columns(photo, numbered_columns or caption_columns, split)


def _parse_row(columns: Columns, entry: Any) -> list[Row]:
    """A row for each photo of an entry."""
    if columns.decision is not None and field(entry, columns.decision, str) == "drop":
        return []
    if columns.prompt is not None and not CAPTION_PROMPT.match(field(entry, columns.prompt, str)):
        prompt = format_value(entry[columns.prompt])
        raise ValueError(f"{columns.prompt} {prompt} asks for no caption")
    photos = field(entry, columns.photo, str, list)
    photos = photos if isinstance(photos, list) else [photos]
    captions: list[str] = []
    for column in columns.captions:
        captions += _parse_captions(field(entry, column, str, list, dict))
    if len(columns.captions) > 1:  # a column for each caption: some photos have fewer
        captions = list(filter(None, captions))
    split = None
    if columns.split is not None and columns.split in entry:
        split = split_name(field(entry, columns.split, str))
        if not split:
            raise ValueError(f"an empty {columns.split}")
    if not photos or not all(isinstance(photo, str) and photo.strip() for photo in photos):
        raise ValueError(f"an empty {columns.photo}")
    paths = [photo_path(photo.strip()) for photo in photos]
    return [Row(path, captions or [""], split, path) for path in paths]


def photo_path(name: str) -> str:
    """The path of a photo without the number of a caption, such as a.jpg for a.jpg#0."""
    return PurePosixPath(NUMBER.sub("", name) if is_photo_name(name) else name).as_posix()


def _parse_captions(value: Any) -> list[str]:
    """The captions of a value: texts or objects such as {"raw": ..., "id": ...}, one or a list.

    A list may be written as JSON, or as Python writes it, which pandas puts into tables.
    """
    if isinstance(value, list):
        return [caption for element in value for caption in _parse_captions(element)]
    if isinstance(value, dict):
        for name in CAPTION_COLUMNS:
            if name in value:
                return _parse_captions(value[name])
    if not isinstance(value, str):
        raise ValueError(f"{format_value(value)} is not a caption")
    text = value.strip()
    if text.startswith(('["', "['")):
        with suppress(ValueError, RecursionError):
            return _parse_captions(json.loads(text))
        with suppress(ValueError, SyntaxError):
            if re.fullmatch(rf"\[(?:{STRING})(?:, (?:{STRING}))*\]", text):
                return [ast.literal_eval(caption) for caption in re.findall(STRING, text)]
        raise ValueError(f"{format_value(value)} is not a list of captions; write it as JSON")
    return [text]
