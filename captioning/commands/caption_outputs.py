"""What `captioning caption` writes for each photo: text files, a table, pictures and pages."""

import csv
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Group, Parameter

from captioning.commands.options import MAPS, MAY_BEGIN_WITH_DASH
from captioning.errors import InputError

if TYPE_CHECKING:
    from captioning.captioner import Caption

INDEX = "index.html"


@Parameter(name="*", group="Texts")
@dataclass(frozen=True)
class TextOptions:
    """The captions as text."""

    sentence: bool = False
    """Write each caption with a capital and a full stop."""
    prefix: Annotated[str, MAY_BEGIN_WITH_DASH] = ""
    """Write this text before each caption."""
    suffix: Annotated[str, MAY_BEGIN_WITH_DASH] = ""
    """Write this text after each caption."""
    txt: bool = False
    """Write a file NAME.txt beside each photo NAME.jpg."""
    txt_dir: Path | None = None
    """Write these files to this folder instead."""
    skip_existing: bool = False
    """Leave out photos whose text file exists."""
    overwrite: bool = False
    """Replace text files that exist."""
    csv: Path | None = None
    """Write a table: file_name, caption, confidence."""

    @property
    def are_written(self) -> bool:
        """Whether text files are written."""
        return self.txt or self.txt_dir is not None

    def written(self, caption: "Caption", min_confidence: float = 0.0) -> str:
        """The caption as it is written; empty if the model is not sure enough."""
        if caption.confidence is not None and caption.confidence < min_confidence:
            return ""
        text = caption.sentence if self.sentence else caption.text
        return f"{self.prefix}{text}{self.suffix}"


@Parameter(name="*", group=Group("Pictures", help="Where the model looked for every word."))
@dataclass(frozen=True)
class PictureOptions:
    """Pictures and pages of where the model looked."""

    overlay: Path | None = None
    """Write a picture per photo to this folder."""
    gif: Path | None = None
    """Write an animation per photo to this folder, one frame per word."""
    html: Path | None = None
    """Write a page per photo to this folder, to see word by word where the model looked, in any
    browser, and index.html with all of them."""
    maps: Annotated[
        tuple[str, ...],
        Parameter(
            name="--map",
            help=f"The map of a word that --overlay and --gif draw: {MAPS}; of a model with "
            "several heads also a head, such as 'head 3' or 'layer 2 head 3', or heads for all of "
            "them. Repeatable: --html compares several. By default the model's default map.",
        ),
    ] = ()

    @property
    def folders(self) -> dict[str, Path]:
        """The folder for each suffix of files that are written."""
        chosen = {".png": self.overlay, ".gif": self.gif, ".html": self.html}
        return {suffix: folder for suffix, folder in chosen.items() if folder is not None}


class TextFiles:
    """A text file per photo.

    Raises:
        InputError: a text file exists, or a photo is in a shard.
    """

    def __init__(self, options: TextOptions, photos: Sequence[Path]) -> None:
        self.names = text_names(photos, options.txt_dir) if options.are_written else {}
        self._skips_existing = options.skip_existing
        if not (options.skip_existing or options.overwrite):
            for path in filter(os.path.lexists, self.names.values()):
                raise InputError(
                    f"{path}: exists; --skip-existing keeps such text files, --overwrite replaces "
                    "them"
                )

    def skips(self, photo: Path) -> bool:
        """Whether the photo has a text file already, so that it need not be captioned."""
        return self._skips_existing and os.path.lexists(self.names.get(photo, ""))

    def write(self, photo: Path, captions: "Sequence[Caption]", texts: Sequence[str]) -> None:
        """Write the texts, one a line, unless the model is sure of none."""
        from captioning.files import written_whole

        lines = "".join(f"{text}\n" for text in texts if text)
        if self.names and lines:
            with written_whole(self.names[photo]) as temporary:
                temporary.write_text(lines, encoding="utf-8", errors="backslashreplace")

    def finish(self) -> None:
        """All is written."""


class Table:
    """A table of all captions, as a training reads it; none without a path."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.rows: list[tuple[object, ...]] = [("file_name", "caption", "confidence")]

    def write(self, photo: Path, captions: "Sequence[Caption]", texts: Sequence[str]) -> None:
        """Add a row for each text."""
        name = os.fsencode(photo).decode("utf-8", "backslashreplace")
        for caption, text in zip(captions, texts, strict=False):
            self.rows.append((name, text, caption.confidence))

    def finish(self) -> None:
        """Write the table."""
        from captioning.files import written_whole

        if self.path is not None:
            with (
                written_whole(self.path) as temporary,
                temporary.open("w", encoding="utf-8", newline="") as file,
            ):
                csv.writer(file).writerows(self.rows)


class Pictures:
    """Pictures, animations and pages of each photo, and the index of the pages.

    Raises:
        InputError: a file would replace a photo.
    """

    def __init__(self, options: PictureOptions, photos: Sequence[Path], megapixels: float) -> None:
        from captioning.data.photos import picture_names

        self.names = {
            suffix: picture_names(photos, folder, suffix, [INDEX] if suffix == ".html" else [])
            for suffix, folder in options.folders.items()
        }
        self._html, self._megapixels = options.html, megapixels
        self._entries: list[tuple[str, str, str, float | None]] = []

    def write(self, photo: Path, captions: "Sequence[Caption]", texts: Sequence[str]) -> None:
        """Draw where the model looked for the first caption; pages show all captions."""
        if not self.names:
            return
        from captioning.data.images import pixels_of, read_image
        from captioning.viewing import viewer

        image, best = read_image(photo, pixels_of(self._megapixels)), captions[0]
        for suffix, names in self.names.items():
            if suffix != ".html":
                best.save(names[photo], image)
                continue
            viewer.save(image, [each.view() for each in captions], names[photo], photo.name)
            thumbnail = viewer.jpeg(image, viewer.THUMBNAIL)
            self._entries.append((names[photo].name, thumbnail, best.sentence, best.confidence))

    def finish(self) -> None:
        """Write the index, if there are several pages."""
        from captioning.viewing.viewer import save_index

        if self._html is not None and len(self._entries) > 1:
            save_index(self._entries, self._html / INDEX)


def text_names(photos: Sequence[Path], folder: Path | None = None) -> dict[Path, Path]:
    """The path of each photo's text file: NAME.txt beside NAME.jpg, or in a folder.

    Of several photos of one name beside each other, such as NAME.jpg and NAME.heic, the later ones
    have their whole name before ``.txt``.

    Raises:
        InputError: a photo is in a shard.
    """
    from captioning.data.photo_shards import is_shard
    from captioning.data.photos import picture_names

    if folder is not None:
        return picture_names(photos, folder, ".txt")
    names: dict[Path, Path] = {}
    taken: set[str] = set()
    for photo in dict.fromkeys(photos):
        if is_shard(photo.parent):
            raise InputError(f"{photo}: in a shard, so no text file goes beside it; give --txt-dir")
        names[photo] = photo.with_suffix(".txt")
        if str(names[photo]).casefold() in taken:  # some file systems ignore case
            names[photo] = photo.with_name(f"{photo.name}.txt")
        taken.add(str(names[photo]).casefold())
    return names
