"""What `captioning caption` writes: a small writer for each kind of output."""

import csv
import io
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from PIL.Image import Image

from captioning.captioner.caption import Caption, rounded
from captioning.commands import discard_output
from captioning.commands.gallery import INDEX, Gallery
from captioning.data.images import read_image
from captioning.errors import InputError, printable
from captioning.files import written_whole
from captioning.inference.bulk import json_line
from captioning.progress_bar import say

NOT_SURE = "not sure"  # printed in place of captions below --min-confidence
COLUMNS = ("file_name", "caption", "confidence")


class CaptionText(NamedTuple):
    """A caption, and its text as it is written."""

    caption: Caption
    text: str
    is_sure: bool  # as sure as --min-confidence asks

    @property
    def sure_text(self) -> str:
        """The text, or nothing if the model is not sure."""
        return self.text if self.is_sure else ""


@dataclass(frozen=True)
class CaptionedPhoto:
    """A photo with its captions.

    Attributes:
        photo: its path.
        captions: all that were asked for, the best first.
        texts: those that are written as text.
        max_pixels: the most pixels of the photo.
    """

    photo: Path
    captions: Sequence[Caption]
    texts: Sequence[CaptionText]
    max_pixels: int

    @cached_property
    def image(self) -> Image:
        """The photo, upright, with all its pixels."""
        return read_image(self.photo, self.max_pixels)


class Output(ABC):
    """One kind of output of a command.

    Attributes:
        paths: the files that it is going to write, of all photos or by photo.
    """

    paths: Sequence[Path] = ()

    @abstractmethod
    def add(self, captioned: CaptionedPhoto) -> None:
        """Write a photo's captions."""

    def finish(self) -> None:  # noqa: B027 - most write photo by photo
        """Write what all photos have together."""


class TextFiles(Output):
    """A text file per photo; one that existed goes if the model is not sure any more."""

    def __init__(self, names: Mapping[Path, Path], existing: Collection[Path]) -> None:
        self.names = names
        self.existing = existing  # the photos whose text file existed

    def add(self, captioned: CaptionedPhoto) -> None:
        file = self.names[captioned.photo]
        lines = [text.sure_text for text in captioned.texts if text.sure_text]
        if lines:
            with written_whole(file) as temporary:
                content = "".join(f"{line}\n" for line in lines)
                temporary.write_text(content, "utf-8", "backslashreplace")
        elif captioned.photo in self.existing:
            file.unlink(missing_ok=True)


class Pictures(Output):
    """A picture or an animation per photo, in the format of the names' suffix."""

    def __init__(self, names: Mapping[Path, Path]) -> None:
        self.names = names
        self.paths = [*names.values()]

    def add(self, captioned: CaptionedPhoto) -> None:
        captioned.captions[0].save(self.names[captioned.photo], captioned.image)


class Pages(Output):
    """A page per photo in a folder, and a gallery of several."""

    def __init__(self, names: Mapping[Path, Path], folder: Path) -> None:
        self.names = names
        self.gallery = Gallery(folder)
        self.paths = [*names.values(), *([folder / INDEX] if len(names) > 1 else [])]

    def add(self, captioned: CaptionedPhoto) -> None:
        page = self.names[captioned.photo]
        self.gallery.add(captioned.photo, captioned.image, captioned.captions, page)

    def finish(self) -> None:
        self.gallery.finish()


class Table(Output):
    """A CSV file of all captions, which names photos from its own folder, where readers look."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.paths = [path]
        self.folder = os.path.realpath(path.parent)
        self.rows: list[Sequence[object]] = [COLUMNS]

    def add(self, captioned: CaptionedPhoto) -> None:
        photo = captioned.photo
        name = str(photo)
        if not photo.is_absolute():
            with suppress(ValueError):  # on another drive of Windows
                name = os.path.relpath(photo, self.folder)
        self.rows += [table_row(name, text) for text in captioned.texts]

    def finish(self) -> None:
        with (
            written_whole(self.path) as temporary,
            temporary.open("w", newline="", encoding="utf-8", errors="backslashreplace") as file,
        ):
            csv.writer(file).writerows(self.rows)


class Lines(Output):
    """A line per caption on standard output.

    Args:
        line: what is printed of a photo's caption.
        is_alone: whether nothing else is written, so that the command ends where nobody reads.
    """

    def __init__(self, line: Callable[[Path, CaptionText], str], is_alone: bool) -> None:
        self.line = line
        self.is_alone = is_alone

    def add(self, captioned: CaptionedPhoto) -> None:
        for text in captioned.texts:
            self.show(self.line(captioned.photo, text))

    def show(self, line: str) -> None:
        try:
            say(line, file=sys.stdout)
        except BrokenPipeError:
            if self.is_alone:
                raise
            discard_output()  # files are written all the same


def check_new(outputs: Sequence[Output]) -> None:
    """Raise InputError if an output exists."""
    for output in outputs:
        for path in output.paths:
            if os.path.lexists(path):
                raise InputError(f"{path}: exists; give another name, or --overwrite to replace it")


def plain_line(photo: Path, text: CaptionText) -> str:
    """A photo and its caption."""
    return printable(photo, text.sure_text or NOT_SURE)


def line_with_confidence(photo: Path, text: CaptionText) -> str:
    """How sure the model is, a photo and its caption."""
    confidence = text.caption.confidence
    number = "none" if confidence is None else f"{confidence:.2f}"
    return printable(number, photo, text.sure_text or NOT_SURE)


def line_of_words(photo: Path, text: CaptionText) -> str:
    """A photo, and the probability of each word."""
    pairs = zip(text.caption.words, text.caption.probabilities, strict=True)
    return printable(photo, " ".join(f"{word} {probability:.2f}" for word, probability in pairs))


def line_of_json(photo: Path, text: CaptionText) -> str:
    """A caption as a line of JSON."""
    return json_line(photo, text.caption, text.text)


def line_of_table(photo: Path, text: CaptionText) -> str:
    """A caption as a row of a table."""
    return csv_line(table_row(str(photo), text))


def table_row(name: str, text: CaptionText) -> tuple[str, str, float | None]:
    """The cells of a caption, of `COLUMNS`."""
    confidence = text.caption.confidence
    share = None if confidence is None else rounded(confidence)
    return spreadsheet_text(name), spreadsheet_text(text.sure_text), share


def spreadsheet_text(text: str) -> str:
    """A cell that spreadsheets show as text: a space comes before what would begin a formula.

    Readers of CSV files, such as ours, skip it (``skipinitialspace``).
    """
    return f" {text}" if text.startswith(("=", "+", "-", "@")) else text


def csv_line(row: Sequence[object]) -> str:
    """A row of a table as a line to print."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(row)
    return printable(line.getvalue())
