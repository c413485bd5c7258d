"""Copies of pages and tables with captions where they lack them: `caption --alt` and `--fill`."""

import codecs
import csv
import io
import re
from abc import abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from html import escape
from html.parser import HTMLParser
from itertools import accumulate
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

from captioning.commands.caption_options import TextOptions
from captioning.commands.caption_outputs import CaptionedPhoto, Output, spreadsheet_text
from captioning.data.photo_files import PARQUET
from captioning.data.readers import CaptionTable
from captioning.data.readers.rows import (
    JSON_LINES,
    QUOTED,
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
        gaps: the photo by the number of the picture or line that lacks its caption.
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
        """The photos to caption.

        Raises:
            InputError: there are none.
        """
        if not self.gaps:
            raise InputError(f"{self.source}: no photo without a caption in it; nothing to write")
        return list(dict.fromkeys(self.gaps.values()))

    def leave_out(self, name: str, reason: str) -> None:
        """Name what gets no caption."""
        say(printable(f"captioning: {self.source}: left out: {name[:100]}: {reason}"))
        self._left_out += 1

    def add(self, captioned_photo: CaptionedPhoto) -> None:
        self._texts[captioned_photo.photo] = captioned_photo.texts[0].sure_text

    def finish(self) -> None:
        texts = {number: self._texts.get(photo, "") for number, photo in self.gaps.items()}
        captions = {number: text for number, text in texts.items() if text}
        with written_whole(self.path) as temporary:
            temporary.write_bytes(self.content(captions))
        unreadable = sum(photo not in self._texts for photo in self.gaps.values())
        counts = {
            "filled": len(captions),
            "not sure": len(texts) - len(captions) - unreadable,
            "left out": self._left_out + unreadable,
        }
        line = ", ".join(f"{count:,} {name}" for name, count in counts.items())
        say(printable(f"captioning: {self.path}: {line}{self.note(captions)}"))

    @abstractmethod
    def content(self, captions: Mapping[int, str]) -> bytes:
        """The file with these captions in its gaps."""

    def note(self, captions: Mapping[int, str]) -> str:
        """What the last line says besides."""
        return ""


@dataclass(frozen=True)
class Picture:
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
            self.set_cdata_mode(tag)
        if tag == "base":
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
            if (picture.attributes.get("alt") or "").strip():
                continue
            name = _source_name(picture)
            try:
                self.gaps[number] = self._photo(picture, urljoin(parser.base, name))
            except ValueError as error:
                self.leave_out(name or picture.tag, str(error))

    def _photo(self, picture: Picture, address: str) -> Path:
        """The file of a picture; raises ValueError if it is to be left out."""
        attributes = picture.attributes
        is_role = (attributes.get("role") or "").strip().lower() in ("presentation", "none")
        if is_role or attributes.get("aria-hidden") == "true":
            raise ValueError("marked as decorative")
        if attributes.get("aria-label") or attributes.get("aria-labelledby"):
            raise ValueError("described by aria-label")
        parts = urlsplit(address)
        path = unquote(parts.path)
        if parts.scheme or parts.netloc or path.startswith("/") or not path:
            raise ValueError("no relative path; addresses are not fetched")
        photo = self.source.parent / path
        if not photo.is_file():
            raise ValueError("no such file")
        return photo

    def content(self, captions: Mapping[int, str]) -> bytes:
        parts, end = [], 0
        for number, caption in captions.items():
            picture = self._pictures[number]
            parts += [self._text[end : picture.start], _with_alt(picture.tag, caption)]
            end = picture.start + len(picture.tag)
        return "".join([*parts, self._text[end:]]).encode("latin-1")

    def note(self, captions: Mapping[int, str]) -> str:
        count = sum("alt" in self._pictures[number].attributes for number in captions)
        meaning = "which says that a picture is decorative; check these"
        return f"; {count:,} of the filled had an empty alt, {meaning}" if count else ""


def _source_name(picture: Picture) -> str:
    """The ``src`` of a picture, whose bytes were read as Latin-1."""
    name = (picture.attributes.get("src") or "").strip()
    with suppress(UnicodeError):
        name = name.encode("latin-1").decode()
    return name


def _with_alt(tag: str, caption: str) -> str:
    """A tag with a caption as ``alt``, in ASCII, in place of an empty one if there is one."""
    text = escape(caption).encode("ascii", "xmlcharrefreplace").decode()
    begin = len("<img")
    for match in ATTRIBUTE.finditer(tag, begin):
        if match[1].lower() == "alt":
            return f'{tag[: match.start()]}alt="{text}"{tag[match.end() :]}'
    return f'{tag[:begin]} alt="{text}"{tag[begin:]}'


class FilledTable(FilledCopy):
    """A CSV or TSV table whose rows have a caption; other lines stay as they are.

    Args:
        source: the table.
        caption_column: the column of the captions, if it is not called by a usual name.
        photo_column: the column of the photos, likewise.
    """

    def __init__(self, source: Path, caption_column: str | None, photo_column: str | None) -> None:
        super().__init__(source)
        if source.suffix.lower() in (".json", *JSON_LINES, PARQUET):
            raise InputError(f"{source}: --fill takes a CSV or TSV table")
        text = read_text(source)
        self._separator, self._lines = csv_separator(text), list(csv_lines(text))
        rows = [line for line in self._lines if any(line.values)]
        if not rows:
            raise InputError(f"{source}: no rows; add some of file_name and caption")
        header, has_names = header_of(rows[0].values)
        columns = find_columns(source, [dict.fromkeys(header, "")], caption_column, photo_column)
        captions = [header.index(name) for name in columns.captions]
        self._column = captions[0]
        names: dict[int, str] = {}
        for number, line in enumerate(self._lines):
            is_row = any(line.values) and not (has_names and line is rows[0])
            if line.error or (is_row and len(line.values) != len(header)):
                self.leave_out(f"line {line.number}", line.error or "another number of values")
            elif is_row and not any(line.values[column].strip() for column in captions):
                names[number] = photo_path(line.values[header.index(columns.photo)].strip())
        photos = CaptionTable(source).photo_paths([*names.values()], source, required=False)
        self.gaps = dict(zip(names, photos, strict=True))

    def content(self, captions: Mapping[int, str]) -> bytes:
        texts = []
        for number, line in enumerate(self._lines):
            texts.append(line.text)
            if number in captions:
                values = list(line.values)
                values[self._column] = spreadsheet_text(captions[number])
                texts[-1] = self._row(values) + line.text[len(line.text.rstrip("\r\n")) :]
        with opened(self.source) as file:
            has_mark = file.read(3) == codecs.BOM_UTF8
        return "".join(texts).encode("utf-8-sig" if has_mark else "utf-8", "backslashreplace")

    def _row(self, values: list[str]) -> str:
        if self._separator not in QUOTED:
            return self._separator.join(value.replace(self._separator, " ") for value in values)
        line = io.StringIO()
        csv.writer(line, delimiter=self._separator, lineterminator="").writerow(values)
        return line.getvalue()


def filled_copy(text_options: TextOptions) -> FilledCopy | None:
    """The copy that ``--alt`` or ``--fill`` asks for, if one of them is given."""
    if text_options.alt is not None and text_options.fill is not None:
        raise InputError("--alt and --fill are of two files; give one of them")
    if text_options.alt is not None:
        return DescribedPage(text_options.alt)
    if text_options.fill is not None:
        return FilledTable(
            text_options.fill, text_options.caption_column, text_options.photo_column
        )
    return None
