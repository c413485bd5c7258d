"""Copies of pages and tables with captions where they lack them: `caption --alt` and `--fill`."""

import csv
import os
import re
from abc import abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from html import escape
from html.parser import HTMLParser
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urljoin, urlsplit

from captioning.commands.caption_options import TextOptions
from captioning.commands.caption_outputs import (
    CaptionedPhoto,
    Output,
    spreadsheet_text,
    write_table,
)
from captioning.data.photo_files import PARQUET
from captioning.data.readers import CaptionTable
from captioning.data.readers.rows import (
    JSON_LINES,
    csv_lines,
    csv_separator,
    find_columns,
    header_of,
    photo_path,
)
from captioning.errors import InputError, printable
from captioning.files import opened, read_text, written_whole
from captioning.progress_bar import say

ATTRIBUTE = re.compile(r"""([^\s"'>/=]+)(?:\s*=\s*(?:"[^"]*"|'[^']*'|[^\s"'>]*))?""")
"""An attribute of a tag."""


class FilledCopy(Output):
    """A copy of a file, ``NAME.captioned.SUFFIX`` beside it, with captions of its photos.

    Attributes:
        gaps: the photo by the number of the picture or row that lacks its caption.
    """

    def __init__(self, source: Path) -> None:
        self.source = source
        self.path = source.with_name(f"{source.stem}.captioned{source.suffix}")
        self.paths = [self.path]
        self.gaps: dict[int, Path] = {}
        self._left_out = 0
        self._texts: dict[Path, str] = {}  # by photo; empty below --min-confidence

    @property
    def photos(self) -> list[Path]:
        """The photos to caption; InputError if there are none."""
        if not self.gaps:
            raise InputError(f"{self.source}: no photo without a caption in it; nothing to write")
        return list(dict.fromkeys(self.gaps.values()))

    def leave_out(self, name: str, reason: object) -> None:
        """Name what gets no caption."""
        say(printable(f"captioning: {self.source}: left out: {name[:100]}: {reason}"))
        self._left_out += 1

    def add(self, captioned_photo: CaptionedPhoto) -> None:
        self._texts[captioned_photo.photo] = captioned_photo.texts[0].sure_text

    def finish(self) -> None:
        captions = {number: self._texts.get(photo, "") for number, photo in self.gaps.items()}
        captions = {number: text for number, text in captions.items() if text}
        self.write(captions)
        unreadable = sum(photo not in self._texts for photo in self.gaps.values())
        unsure = len(self.gaps) - len(captions) - unreadable
        counts = (
            f"{len(captions)} filled, {unsure} not sure, {self._left_out + unreadable} left out"
        )
        say(printable(f"captioning: {self.path}: {counts}"))

    @abstractmethod
    def write(self, captions: Mapping[int, str]) -> None:
        """Write the file with these captions in its gaps."""


class Picture(NamedTuple):
    """An ``<img>`` of a page: where it starts, its text, and its attributes."""

    start: int
    tag: str
    attributes: Mapping[str, str | None]


class PictureParser(HTMLParser):
    """Finds the pictures of a page, and its base address."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.pictures: list[Picture] = []
        self.base = ""
        self._line_starts = [0, *accumulate(len(line) + 1 for line in text.split("\n"))]
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(reversed(attrs))  # of two of a name the first one counts
        if tag in ("title", "textarea"):  # which older versions of Python take for markup
            if not (self.get_starttag_text() or "").endswith("/>"):  # as in SVG
                self.set_cdata_mode(tag)
        elif tag == "base":
            self.base = self.base or attributes.get("href") or ""
        elif tag == "img":
            line, column = self.getpos()
            start = self._line_starts[line - 1] + column
            self.pictures.append(Picture(start, self.get_starttag_text() or "", attributes))


class DescribedPage(FilledCopy):
    """A page whose local pictures have an ``alt``; all else stays byte for byte.

    Pictures with an empty ``alt`` get one too, unless ``role`` or ``aria-hidden`` says that they
    are decorative.
    """

    def __init__(self, source: Path) -> None:
        super().__init__(source)
        with opened(source) as file:
            content = file.read()
        if b"\0" in content:
            raise InputError(f"{source}: no page in UTF-8; save it with this encoding")
        self._text = content.decode("latin-1")  # a character for each byte, in any encoding
        parser = PictureParser(self._text)
        self._pictures = parser.pictures
        for number, picture in enumerate(self._pictures):
            if not (picture.attributes.get("alt") or "").strip():
                name = picture.attributes.get("src") or picture.tag
                with suppress(UnicodeError):
                    name = name.encode("latin-1").decode()
                try:
                    self.gaps[number] = self._photo(picture, urljoin(parser.base, name.strip()))
                except ValueError as error:
                    self.leave_out(name, error)

    def _photo(self, picture: Picture, address: str) -> Path:
        """The file of a picture; raises ValueError if it is to be left out."""
        attributes = picture.attributes
        is_decorative = attributes.get("role") in ("presentation", "none")
        if is_decorative or attributes.get("aria-hidden") == "true":
            raise ValueError("marked as decorative")
        if attributes.get("aria-label") or attributes.get("aria-labelledby"):
            raise ValueError("described by aria-label")
        parts = urlsplit(address)
        if parts.scheme or parts.netloc or parts.path.startswith("/"):
            raise ValueError("no relative path; addresses are not fetched")
        photo = self.source.parent / unquote(parts.path)
        if not os.path.isfile(photo):  # noqa: PTH113 - a Path raises if a name is too long
            raise ValueError("no such file")
        return photo

    def write(self, captions: Mapping[int, str]) -> None:
        parts, end, empty = [], 0, 0
        for number, caption in captions.items():
            start, tag, attributes = self._pictures[number]
            parts += [self._text[end:start], _with_alt(tag, caption)]
            end = start + len(tag)
            empty += "alt" in attributes
        with written_whole(self.path) as temporary:
            temporary.write_bytes("".join([*parts, self._text[end:]]).encode("latin-1"))
        if empty:
            meaning = "an empty alt, which says that a picture is decorative; check these"
            say(printable(f"captioning: {self.path}: {empty} of the filled had {meaning}"))


def _with_alt(tag: str, caption: str) -> str:
    """A tag with a caption as ``alt``, in ASCII, in place of an empty one if there is one."""
    text = escape(caption).encode("ascii", "xmlcharrefreplace").decode()
    begin = len("<img")
    for match in ATTRIBUTE.finditer(tag, begin):
        if match[1].lower() == "alt":
            return f'{tag[: match.start()]}alt="{text}"{tag[match.end() :]}'
    return f'{tag[:begin]} alt="{text}"{tag[begin:]}'


class FilledTable(FilledCopy):
    """A CSV or TSV table whose rows have a caption.

    Args:
        source: the table.
        caption_column: the column of the captions, if it is not called by a usual name.
        photo_column: the column of the photos, likewise.
    """

    def __init__(self, source: Path, caption_column: str | None, photo_column: str | None) -> None:
        super().__init__(source)
        if source.suffix.lower() in (".json", *JSON_LINES, PARQUET):
            raise InputError(f"{source}: --fill takes a CSV or TSV table")
        lines = list(csv_lines(source))
        self._rows: list[list[str]] = [line.value for line in lines]
        spaced_values = {line.key: line.value for line in csv_lines(source, skips_spaces=False)}
        self._spaced_rows = [spaced_values.get(line.key) for line in lines]
        if not lines:
            raise InputError(f"{source}: no rows; add some of file_name and caption")
        for line in lines:
            if isinstance(line.value, csv.Error):
                raise InputError(f"{line.place}: not CSV ({line.value})")
        header, is_row = header_of(self._rows[0])
        columns = find_columns(source, [dict.fromkeys(header, "")], caption_column, photo_column)
        caption_places = [header.index(name) for name in columns.captions]
        self._place = caption_places[0]
        names: dict[int, str] = {}
        for number, row in enumerate(self._rows):
            if len(row) != len(header):
                self.leave_out(f"line {lines[number].key}", "another number of values")
            elif (number or is_row) and not any(row[place].strip() for place in caption_places):
                names[number] = photo_path(row[header.index(columns.photo)].strip())
        photos = CaptionTable(source).photo_paths([*names.values()], source, required=False)
        self.gaps = dict(zip(names, photos, strict=True))

    def write(self, captions: Mapping[int, str]) -> None:
        rows = [*map(_with_spaces, self._rows, self._spaced_rows)]
        for number, caption in captions.items():
            rows[number][self._place] = spreadsheet_text(caption)
        write_table(rows, self.path, csv_separator(read_text(self.source)))


def _with_spaces(row: list[str], spaced_row: object) -> list[str]:
    """A row with the spaces before its values, which keep spreadsheets from reading formulas."""
    if isinstance(spaced_row, list):
        texts, spaced_texts = ([value.lstrip(" ") for value in r] for r in (row, spaced_row))
        if texts == spaced_texts:  # no quotes come after spaces
            return spaced_row
    return row


def filled_copy(text_options: TextOptions) -> FilledCopy:
    """The copy that ``--alt`` or ``--fill`` asks for; one of them is given."""
    page, table = text_options.alt, text_options.fill
    if page is not None and table is not None:
        raise InputError("--alt and --fill are of two files; give one of them")
    if table is not None:
        return FilledTable(table, text_options.caption_column, text_options.photo_column)
    assert page is not None
    return DescribedPage(page)
