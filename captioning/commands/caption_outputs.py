"""The outputs of `captioning caption`: a small writer for each kind."""

import csv
import io
import os
import stat
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from PIL.Image import Image

from captioning.captioner.calibration import rounded
from captioning.captioner.caption import Caption
from captioning.commands import discard_output
from captioning.commands.caption_options import (
    STDOUT,
    LineOptions,
    PictureOptions,
    TextOptions,
)
from captioning.commands.gallery import INDEX, Gallery
from captioning.data.descriptions import Descriptions, sidecar_of
from captioning.data.images import DecodedPhoto, output_names, read_image
from captioning.data.xmp import Xmp
from captioning.errors import InputError, printable
from captioning.files import made_folder, written_whole
from captioning.inference.json_lines import json_line
from captioning.progress_bar import say

NOT_SURE = "not sure"
"""Printed in place of captions below ``--min-confidence``."""

CAPTION_COLUMNS = ("file_name", "caption", "confidence", "keywords", "chances")
"""The columns of a CSV file."""

SEPARATOR = "; "
"""Between the keywords of a photo, and between their chances."""


class CaptionText(NamedTuple):
    """A caption, and the text to write of it.

    `sure_text` is empty if the caption's confidence does not reach ``--min-confidence``.
    `keywords` are those of the caption whose chance reaches ``--keywords``.
    """

    caption: Caption
    text: str
    sure_text: str
    keywords: Mapping[str, float]


def caption_text(caption: Caption, text_options: TextOptions, min_confidence: float) -> CaptionText:
    """Make text of a caption; one that was cut off has no confidence, so it is never sure."""
    words = caption.sentence if text_options.sentence else caption.text
    text = f"{text_options.prefix}{words}{text_options.suffix}"
    is_sure = not min_confidence or (caption.confidence or 0.0) >= min_confidence
    keywords = {
        word: chance for word, chance in caption.keywords.items() if chance >= text_options.keywords
    }
    return CaptionText(caption, text, text if is_sure else "", keywords)


@dataclass(frozen=True)
class CaptionedPhoto:
    """A photo with its captions.

    Attributes:
        photo: its path.
        captions: the captions of a page, the best first.
        texts: the captions that are written as text.
        max_pixels: the most pixels of the photo.
    """

    photo: Path
    captions: Sequence[Caption]
    texts: Sequence[CaptionText]
    max_pixels: int

    @cached_property
    def image(self) -> Image:
        """The photo, upright, at full size."""
        return read_image(self.photo, self.max_pixels)


class Output(ABC):
    """One kind of output of a command.

    Attributes:
        paths: the files to write, which must not exist.
        failures: the number of photos whose file could not be written.
    """

    paths: Sequence[Path] = ()
    failures: int = 0

    @abstractmethod
    def add(self, captioned_photo: CaptionedPhoto) -> None:
        """Write the captions of a photo."""

    def finish(self) -> None:  # noqa: B027 - most outputs write photo by photo
        """Write the files of all photos together."""


@dataclass(frozen=True)
class TextFiles(Output):
    """A text file per photo, which is removed if it existed and the model is not sure any more."""

    files: Mapping[Path, Path]  # by photo
    existing: Collection[Path]

    def add(self, captioned_photo: CaptionedPhoto) -> None:
        file = self.files[captioned_photo.photo]
        lines = [text.sure_text for text in captioned_photo.texts if text.sure_text]
        if lines:
            with written_whole(file) as temporary:
                content = "".join(f"{line}\n" for line in lines)
                temporary.write_text(content, "utf-8", "backslashreplace")
        elif file in self.existing:
            file.unlink(missing_ok=True)


@dataclass
class XmpFiles(Output):
    """An XMP file per photo. What it holds by others stays; our caption is replaced or removed.

    Attributes:
        model: the name of the model.
        failures: the number of photos whose file cannot be read or written.
    """

    model: str
    failures: int = 0

    def add(self, captioned_photo: CaptionedPhoto) -> None:
        try:
            self._write(captioned_photo.photo, captioned_photo.texts[0])
        except InputError as error:
            say(f"captioning: {error}")
            self.failures += 1

    def _write(self, photo: Path, text: CaptionText) -> None:
        sidecar, descriptions = sidecar_of(photo), Descriptions(photo)
        # A new file hides what is in the photo from many programs, so it begins with that.
        xmp = descriptions.xmp.get(sidecar, descriptions.xmp[photo])
        text_of_people = descriptions.of_people("xmp", "iptc")
        had_caption = xmp.remove_caption()
        if text.sure_text:
            if text_of_people and not xmp.description:
                xmp.describe(text_of_people)
            if not xmp.keywords:
                xmp.add_keywords(descriptions.keywords)
            xmp.add_caption(text.sure_text, text.keywords, self.model, text.caption.confidence)
        elif sidecar not in descriptions.xmp or not had_caption:
            return
        if sidecar.exists() and not sidecar.stat().st_mode & stat.S_IWUSR:
            raise InputError(f"{sidecar}: read-only; to caption it, allow writing to it")
        with written_whole(sidecar) as temporary:
            temporary.write_bytes(xmp.content)


class Pictures(Output):
    """A picture or an animation per photo, in the format of the file's suffix."""

    def __init__(self, files: Mapping[Path, Path]) -> None:
        self.files = files  # by photo
        self.paths = [*files.values()]

    def add(self, captioned_photo: CaptionedPhoto) -> None:
        file, best = self.files[captioned_photo.photo], captioned_photo.captions[0]
        is_decoded = isinstance(best.photo, DecodedPhoto)
        best.save(file, None if is_decoded else captioned_photo.image)


class Pages(Output):
    """A page per photo in a folder, and a gallery of several."""

    def __init__(self, files: Mapping[Path, Path], folder: Path) -> None:
        self.files = files  # by photo
        self.gallery = Gallery(folder)
        self.paths = [*files.values(), *([folder / INDEX] if len(files) > 1 else [])]

    def add(self, captioned_photo: CaptionedPhoto) -> None:
        photo = captioned_photo.photo
        page, keywords = self.files[photo], captioned_photo.texts[0].keywords
        self.gallery.add(photo, captioned_photo.image, captioned_photo.captions, page, keywords)

    def finish(self) -> None:
        self.gallery.finish()


class CsvFile(Output):
    """A CSV file of all captions, which names photos relative to its own folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.paths = [path]
        self.folder = os.path.realpath(path.parent)
        self.rows: list[Sequence[object]] = [CAPTION_COLUMNS]

    def add(self, captioned_photo: CaptionedPhoto) -> None:
        photo = captioned_photo.photo
        name = str(photo)
        if not photo.is_absolute():
            with suppress(ValueError):  # on another drive of Windows
                name = os.path.relpath(photo, self.folder)
        self.rows += [table_row(name, text) for text in captioned_photo.texts]

    def check_folder(self) -> None:
        """Raise InputError if its folder, which is made, cannot be written into."""
        try:
            made_folder(self.path.parent)
        except OSError as error:
            reason = error.strerror or error
            raise InputError(f"{self.path}: cannot be written ({reason})") from None

    def finish(self) -> None:
        write_table(self.rows, self.path)


@dataclass(frozen=True)
class PrintedLines(Output):
    """A line per caption on standard output.

    Attributes:
        line: returns the line of a photo's caption.
        is_alone: whether this is the only output. If so, a closed pipe ends the command.
    """

    line: Callable[[Path, CaptionText], str]
    is_alone: bool

    def add(self, captioned_photo: CaptionedPhoto) -> None:
        for text in captioned_photo.texts:
            self.print(self.line(captioned_photo.photo, text))

    def print(self, line: str) -> None:
        try:
            say(line, file=sys.stdout)
        except BrokenPipeError:
            if self.is_alone:
                raise
            discard_output()  # files are written all the same


def file_outputs(
    photos: list[Path],
    mirrored_paths: Sequence[str],
    text_options: TextOptions,
    picture_options: PictureOptions,
    model: str,
    overwrite: bool,
    copies: Sequence[Output] = (),
) -> tuple[list[Path], list[Output]]:
    """Return the photos to caption, and the outputs that are files.

    Args:
        photos: as `find_photos` gives them for `mirrored_paths`.
        mirrored_paths: photos, folders and patterns, whose folders the outputs mirror.
        text_options: where texts go, and whether photos that have a text are left out.
        picture_options: where pictures, animations and pages go.
        model: the name of the model, or its file.
        overwrite: replace files that exist.
        copies: the copies of pages or tables that the captions fill.

    Raises:
        InputError: a file exists, and is neither to be kept nor replaced, or the table cannot be
            written.
    """
    outputs = [*copies]
    if text_options.csv not in (None, STDOUT):
        outputs.append(CsvFile(text_options.csv))
    remaining = photos
    if text_options.txt or text_options.txt_dir:
        files = output_names(photos, mirrored_paths, folder=text_options.txt_dir, suffix=".txt")
        existing = [file for file in files.values() if os.path.lexists(file)]
        if text_options.skip_existing and not overwrite:
            remaining = [photo for photo in photos if files[photo] not in set(existing)]
        elif existing and not overwrite:
            raise InputError(
                f"{existing[0]}: exists; give --skip-existing to keep it, or --overwrite"
            )
        outputs.append(TextFiles(files, set(existing)))
    if text_options.xmp:
        if text_options.skip_existing and not overwrite:
            remaining = [photo for photo in remaining if not is_described(photo)]
        outputs.append(XmpFiles("/".join(Path(model).parts[-2:])))
    for suffix, folder in picture_options.folders.items():
        is_page = suffix == ".html"
        # Also of photos that are left out, so that the names of the others stay as they are.
        files = output_names(
            photos,
            mirrored_paths,
            folder=folder,
            suffix=suffix,
            reserved_names=[INDEX] if is_page else [],
        )
        files = {photo: files[photo] for photo in remaining}
        outputs.append(Pages(files, folder) if is_page else Pictures(files))
    for path in chain.from_iterable(output.paths for output in outputs):
        if not overwrite and os.path.lexists(path):
            raise InputError(f"{path}: exists; give another name, or --overwrite to replace it")
    for output in outputs:
        if isinstance(output, CsvFile):
            output.check_folder()
    return remaining, outputs


def is_described(photo: Path) -> bool:
    """Whether the XMP file of a photo has a description."""
    try:
        return bool(Xmp.read(sidecar_of(photo)).description)
    except InputError:  # there is none; or writing it says why it cannot be read
        return False


def line_output(
    line_options: LineOptions,
    text_options: TextOptions,
    has_probabilities: bool,
    is_alone: bool,
) -> PrintedLines:
    """Return the output that prints lines, after the header of a table."""
    if line_options.json:
        return PrintedLines(line_of_json, is_alone)
    if text_options.csv == STDOUT:
        lines = PrintedLines(line_of_table, is_alone)
        lines.print(csv_line(CAPTION_COLUMNS))
        return lines
    if has_probabilities:
        return PrintedLines(line_of_words, is_alone)
    return PrintedLines(line_with_confidence if line_options.confidence else plain_line, is_alone)


def plain_line(photo: Path, text: CaptionText) -> str:
    """Format a photo and its caption."""
    return printable(photo, text.sure_text or NOT_SURE)


def line_with_confidence(photo: Path, text: CaptionText) -> str:
    """Format a confidence, a photo and its caption."""
    confidence = text.caption.confidence
    number = "none" if confidence is None else f"{confidence:.2f}"
    return printable(number, photo, text.sure_text or NOT_SURE)


def line_of_words(photo: Path, text: CaptionText) -> str:
    """Format a photo, and the probability of each word."""
    pairs = zip(text.caption.words, text.caption.probabilities, strict=True)
    return printable(photo, " ".join(f"{word} {probability:.2f}" for word, probability in pairs))


def line_of_json(photo: Path, text: CaptionText) -> str:
    """Format a caption as a line of JSON."""
    return json_line(photo, text.caption, text.text)


def line_of_table(photo: Path, text: CaptionText) -> str:
    """Format a caption as a row of a table."""
    return printable(csv_line(table_row(str(photo), text)))


def table_row(name: str, text: CaptionText) -> Sequence[str | float | None]:
    """Return the cells of a caption under `CAPTION_COLUMNS`."""
    confidence = text.caption.confidence
    share = None if confidence is None else rounded(confidence)
    chances = [str(rounded(chance)) for chance in text.keywords.values()]
    return (
        spreadsheet_text(name),
        spreadsheet_text(text.sure_text),
        share,
        spreadsheet_text(SEPARATOR.join(text.keywords)),
        SEPARATOR.join(chances),
    )


def spreadsheet_text(text: str) -> str:
    """Put a space before a cell that spreadsheets would take for a formula.

    Readers of CSV files, such as ours, skip it (``skipinitialspace``).
    """
    return f" {text}" if text.startswith(("=", "+", "-", "@")) else text


def write_table(rows: Iterable[Sequence[object]], path: Path) -> None:
    """Write a CSV file, with the mark by which Excel recognises UTF-8."""
    with (
        written_whole(path) as temporary,
        temporary.open("w", newline="", encoding="utf-8-sig", errors="backslashreplace") as file,
    ):
        csv.writer(file).writerows(rows)


def csv_line(row: Sequence[object], separator: str = ",") -> str:
    """Format a row of a table, without the end of the line."""
    line = io.StringIO()
    csv.writer(line, delimiter=separator, lineterminator="").writerow(row)
    return line.getvalue()
