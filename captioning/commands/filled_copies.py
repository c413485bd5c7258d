"""Copies of pages and tables with captions where they lack them: `caption --alt` and `--fill`."""

import codecs
import csv
import io
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
    csv_line,
    spreadsheet_text,
)
from captioning.data.photo_files import PARQUET
from captioning.data.readers import CaptionTable
from captioning.data.readers.rows import (
    JSON_LINES,
    csv_cell_pattern,
    csv_lines,
    csv_separator,
    find_columns,
    header_of,
    photo_path,
)
from captioning.errors import InputError, printable
from captioning.files import opened, read_text, text_encoding, written_whole
from captioning.progress_bar import say

ATTRIBUTE = re.compile(r"""([^\s"'>/=]+)(?:\s*=\s*(?:"[^"]*"|'[^']*'|[^\s"'>]*))?""")
"""An attribute of a tag."""


class Gap(NamedTuple):
    """A part of a text where a caption belongs, and its photo."""

    start: int
    stop: int
    photo: Path


class FilledCopy(Output):
    """A copy of a file, ``NAME.captioned.SUFFIX`` beside it, with captions of its photos.

    All else stays byte for byte.

    Attributes:
        gaps: where captions are missing in the text, in order.
    """

    def __init__(self, source: Path, text: str, encoding: str, mark: bytes = b"") -> None:
        self.source, self.text, self.encoding, self.mark = source, text, encoding, mark
        self.path = source.with_name(f"{source.stem}.captioned{source.suffix}")
        self.paths = [self.path]
        self.gaps: list[Gap] = []
        self._left_out = 0
        self._captions: dict[Path, str] = {}  # by photo; empty below --min-confidence

    @property
    def photos(self) -> list[Path]:
        """The photos to caption; InputError if there are none."""
        if not self.gaps:
            raise InputError(f"{self.source}: no photo without a caption in it; nothing to write")
        return list(dict.fromkeys(gap.photo for gap in self.gaps))

    def leave_out(self, name: str, reason: object) -> None:
        """Name what gets no caption."""
        say(printable(f"captioning: {self.source}: left out: {name[:100]}: {reason}"))
        self._left_out += 1

    def add(self, captioned_photo: CaptionedPhoto) -> None:
        self._captions[captioned_photo.photo] = captioned_photo.texts[0].sure_text

    def finish(self) -> None:
        parts, end = [], 0
        for gap in self.filled_gaps:
            parts += [self.text[end : gap.start], self.filling(gap, self._captions[gap.photo])]
            end = gap.stop
        content = "".join([*parts, self.text[end:]])
        with written_whole(self.path) as temporary:
            temporary.write_bytes(self.mark + content.encode(self.encoding, "backslashreplace"))
        filled = len(self.filled_gaps)
        unreadable = sum(gap.photo not in self._captions for gap in self.gaps)
        unsure = len(self.gaps) - filled - unreadable
        counts = f"{filled} filled, {unsure} not sure, {self._left_out + unreadable} left out"
        say(printable(f"captioning: {self.path}: {counts}"))

    @property
    def filled_gaps(self) -> list[Gap]:
        """The gaps that have a caption."""
        return [gap for gap in self.gaps if self._captions.get(gap.photo)]

    @abstractmethod
    def filling(self, gap: Gap, caption: str) -> str:
        """What stands in a gap that has a caption."""


class Picture(NamedTuple):
    """An ``<img>`` of a page: where it starts, its text, and its attributes."""

    start: int
    tag: str
    attributes: Mapping[str, str | None]

    @property
    def address(self) -> str:
        """The ``src``, else the first address of the ``srcset``; empty if there is neither."""
        candidates = (self.attributes.get("srcset") or "").split() or [""]
        return self.attributes.get("src") or candidates[0].rstrip(",")


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
    """A page whose local pictures have an ``alt``.

    Pictures with an empty ``alt`` get one too, unless ``role`` or ``aria-hidden`` says that they
    are decorative.
    """

    def __init__(self, source: Path) -> None:
        with opened(source) as file:
            content = file.read()
        if b"\0" in content:
            raise InputError(f"{source}: no page in UTF-8; save it with this encoding")
        text = content.decode("latin-1")  # a character for each byte, in any encoding
        super().__init__(source, text, "latin-1")
        parser = PictureParser(text)
        for picture in parser.pictures:
            if not (picture.attributes.get("alt") or "").strip():
                name = picture.address or picture.tag
                with suppress(UnicodeError):
                    name = name.encode("latin-1").decode()
                try:
                    photo = self._photo(picture, urljoin(parser.base, name.strip()))
                except ValueError as error:
                    self.leave_out(name, error)
                else:
                    self.gaps.append(Gap(*alt_span(picture), photo))

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

    def filling(self, gap: Gap, caption: str) -> str:
        text = escape(caption).encode("ascii", "xmlcharrefreplace").decode()
        return f'alt="{text}"' if gap.start < gap.stop else f' alt="{text}"'

    def finish(self) -> None:
        if empty := sum(gap.start < gap.stop for gap in self.filled_gaps):
            meaning = "an empty alt, which says that a picture is decorative; check these"
            say(printable(f"captioning: {self.path}: {empty} of the filled had {meaning}"))
        super().finish()


def alt_span(picture: Picture) -> tuple[int, int]:
    """Where the ``alt`` of a picture is, or where one belongs."""
    begin = len("<img")
    for match in ATTRIBUTE.finditer(picture.tag, begin):
        if match[1].lower() == "alt":
            return picture.start + match.start(), picture.start + match.end()
    return picture.start + begin, picture.start + begin


class FilledTable(FilledCopy):
    """A CSV or TSV table whose rows have a caption.

    Args:
        source: the table.
        caption_column: the column of the captions, if it is not called by a usual name.
        photo_column: the column of the photos, likewise.
    """

    def __init__(self, source: Path, caption_column: str | None, photo_column: str | None) -> None:
        if source.suffix.lower() in (".json", *JSON_LINES, PARQUET):
            raise InputError(f"{source}: --fill takes a CSV or TSV table")
        text = read_text(source)
        with opened(source) as file:
            mark, encoding = text_encoding(file.read(len(codecs.BOM_UTF8)))
        super().__init__(source, text, encoding, mark)
        lines = list(csv_lines(source, text))
        if not lines:
            raise InputError(f"{source}: no rows; add some of file_name and caption")
        for line in lines:
            if isinstance(line.value, csv.Error):
                raise InputError(f"{line.place}: not CSV ({line.value})")
        header, is_row = header_of(lines[0].value)
        columns = find_columns(source, [dict.fromkeys(header, "")], caption_column, photo_column)
        caption_places = [header.index(name) for name in columns.captions]
        self._separator = csv_separator(text)
        caption_cell = csv_cell_pattern(self._separator, caption_places[0])
        line_starts = [0, *accumulate(map(len, io.StringIO(text, newline="")))]
        names: list[str] = []
        spans: list[tuple[int, int]] = []
        for line in lines if is_row else lines[1:]:
            row = line.value
            if len(row) != len(header):
                self.leave_out(f"line {line.key}", "another number of values")
            elif not any(row[place].strip() for place in caption_places):
                name = row[header.index(columns.photo)].strip()
                cell = caption_cell.match(text, line_starts[int(line.key) - 1])
                assert cell is not None
                if name:
                    names.append(photo_path(name))
                    spans.append(cell.span(1))
                else:
                    self.leave_out(f"line {line.key}", f"no name in the column {columns.photo}")
        photos = CaptionTable(source).photo_paths(names, source, required=False)
        self.gaps = [Gap(*span, photo) for span, photo in zip(spans, photos, strict=True)]

    def filling(self, gap: Gap, caption: str) -> str:
        return csv_line([spreadsheet_text(caption)], self._separator)


def filled_copy(text_options: TextOptions) -> FilledCopy:
    """The copy that ``--alt`` or ``--fill`` asks for; one of them is given."""
    page, table = text_options.alt, text_options.fill
    if page is not None and table is not None:
        raise InputError("--alt and --fill are of two files; give one of them")
    if table is not None:
        return FilledTable(table, text_options.caption_column, text_options.photo_column)
    assert page is not None
    return DescribedPage(page)
