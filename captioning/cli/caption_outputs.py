"""What `captioning caption` writes for each photo: text files, a table, pictures and pages."""

import argparse
import csv
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from captioning.cli.options import add_maps
from captioning.data.photo_shards import is_shard
from captioning.data.photos import picture_names
from captioning.errors import InputError, UsageError

if TYPE_CHECKING:
    from captioning.captioner import Caption

PICTURES = {"overlay": ".png", "gif": ".gif", "html": ".html"}
"""Options that write a file per photo to a folder, and the suffix of the file."""

NOT_SURE = "not sure"
"""Printed in place of captions below --min-confidence."""

INDEX = "index.html"


def add_outputs(parser: argparse.ArgumentParser) -> None:
    """Add the options of what is written for each photo."""
    words = parser.add_argument_group("text", "the captions as text")
    words.add_argument(
        "--sentence", action="store_true", help="write each caption with a capital and a full stop"
    )
    words.add_argument(
        "--prefix", default="", metavar="TEXT", help="write TEXT before each caption"
    )
    words.add_argument("--suffix", default="", metavar="TEXT", help="write TEXT after each caption")
    words.add_argument(
        "--txt", action="store_true", help="write a file NAME.txt beside each photo NAME.jpg"
    )
    words.add_argument("--txt-dir", metavar="DIR", help="write these files to this folder instead")
    existing = words.add_mutually_exclusive_group()
    existing.add_argument(
        "--skip-existing", action="store_true", help="leave out photos whose text file exists"
    )
    existing.add_argument("--overwrite", action="store_true", help="replace text files that exist")
    words.add_argument(
        "--csv", metavar="FILE", help="write a table: file_name, caption, confidence"
    )
    pictures = parser.add_argument_group("pictures", "where the model looked for every word")
    pictures.add_argument("--overlay", metavar="DIR", help="write a picture per photo")
    pictures.add_argument(
        "--gif", metavar="DIR", help="write an animation per photo, one frame per word"
    )
    pictures.add_argument(
        "--html",
        metavar="DIR",
        help="write a page per photo to see word by word where the model looked, in any browser, "
        f"and {INDEX} with all of them",
    )
    add_maps(parser, "the map of a word that --overlay and --gif draw; --html compares several")


def check_outputs(options: argparse.Namespace) -> None:
    """Check that options are given together with what they are for.

    Raises:
        UsageError: an option has no effect.
    """
    if options.out is not None:
        given = [
            *PICTURES,
            *("maps", "sentence", "prefix", "suffix", "txt", "txt_dir"),
            *("skip_existing", "overwrite", "csv", "confidence", "min_confidence"),
            *("captions", "diverse"),
        ]
        for name in (name for name in given if getattr(options, name)):
            flag = "map" if name == "maps" else name.replace("_", "-")
            raise UsageError(f"--{flag} is for printed captions; leave out either it or --out")
    if options.maps and not any(getattr(options, name) for name in PICTURES):
        raise UsageError("--map is for pictures; give --overlay, --gif or --html too")
    if (options.skip_existing or options.overwrite) and not _writes_texts(options):
        raise UsageError("--skip-existing and --overwrite are for text files; give --txt too")


class Outputs:
    """What is written for each photo, and at the end.

    Args:
        options: those of `add_outputs`.
        photos: all photos.

    Raises:
        InputError: a file would replace a photo, or a text file exists.

    Attributes:
        photos: the photos to caption.
        has_pictures: whether pictures, animations or pages are written, which need maps.
    """

    def __init__(self, options: argparse.Namespace, photos: Sequence[Path]) -> None:
        self.options = options
        self.pictures = {
            name: picture_names(photos, folder, suffix, [INDEX] if name == "html" else [])
            for name, suffix in PICTURES.items()
            if (folder := getattr(options, name))
        }
        self.has_pictures = bool(self.pictures)
        self.texts = self._texts(photos)
        self.photos = [
            photo
            for photo in photos
            if not (options.skip_existing and os.path.lexists(self.texts[photo]))
        ]
        self.rows: list[list[object]] = []
        self.entries: list[tuple[str, str, str, float | None]] = []

    def _texts(self, photos: Sequence[Path]) -> dict[Path, Path]:
        """The path of each photo's text file, if they are written."""
        options = self.options
        if not _writes_texts(options):
            return {}
        names = text_names(photos, options.txt_dir)
        if not (options.skip_existing or options.overwrite):
            for path in filter(os.path.lexists, names.values()):
                raise InputError(
                    f"{path}: exists; --skip-existing keeps such text files, --overwrite replaces "
                    "them"
                )
        return names

    def text(self, caption: "Caption") -> str:
        """The caption as it is written."""
        text = caption.sentence if self.options.sentence else caption.text
        return f"{self.options.prefix}{text}{self.options.suffix}"

    def sure_text(self, caption: "Caption") -> str | None:
        """The caption as it is written; None if the model is not sure enough."""
        sure = 1.0 if caption.confidence is None else caption.confidence
        return self.text(caption) if sure >= (self.options.min_confidence or 0) else None

    def write(self, photo: Path, captions: Sequence["Caption"]) -> None:
        """Write a photo's files; the first caption is the best one, and pages show all."""
        from captioning.files import written_whole

        asked = captions[: self.options.captions or 1]
        texts = [self.sure_text(caption) for caption in asked]
        lines = "".join(f"{text}\n" for text in texts if text is not None)
        if self.texts and lines:
            with written_whole(self.texts[photo]) as temporary:
                temporary.write_text(lines, encoding="utf-8", errors="backslashreplace")
        if self.options.csv:
            name = os.fsencode(photo).decode("utf-8", "backslashreplace")
            self.rows += [
                [name, text or "", caption.confidence]
                for caption, text in zip(asked, texts, strict=True)
            ]
        if self.pictures:
            self._draw(photo, captions)

    def _draw(self, photo: Path, captions: Sequence["Caption"]) -> None:
        from captioning.data.images import read_image
        from captioning.viewing import viewer

        image, files = read_image(photo, self.options.max_pixels), self.pictures
        if "overlay" in files:
            captions[0].save(files["overlay"][photo], image)
        if "gif" in files:
            captions[0].save(files["gif"][photo], image)
        if "html" in files:
            page, best = files["html"][photo], captions[0]
            viewer.save(image, [caption.view() for caption in captions], page, photo.name)
            thumbnail = viewer.jpeg(image, viewer.THUMBNAIL)
            self.entries.append((page.name, thumbnail, best.sentence, best.confidence))

    def finish(self) -> None:
        """Write the table and the index of the pages."""
        from captioning.files import written_whole
        from captioning.viewing.viewer import save_index

        if self.options.csv:
            with (
                written_whole(self.options.csv) as temporary,
                temporary.open("w", encoding="utf-8", newline="") as file,
            ):
                table = csv.writer(file)
                table.writerow(["file_name", "caption", "confidence"])
                table.writerows(self.rows)
        if len(self.entries) > 1:
            save_index(self.entries, Path(self.options.html) / INDEX)


def text_names(photos: Sequence[Path], folder: str | None = None) -> dict[Path, Path]:
    """The path of each photo's text file: NAME.txt beside NAME.jpg, or in a folder.

    Of several photos of one name beside each other, such as NAME.jpg and NAME.heic, the later ones
    have their whole name before ``.txt``.

    Raises:
        InputError: a text file would replace one of the photos, or a photo is in a shard.
    """
    if folder is not None:
        return picture_names(photos, folder, ".txt")
    names: dict[Path, Path] = {}
    taken = {str(photo).casefold() for photo in photos}
    for photo in dict.fromkeys(photos):
        if is_shard(photo.parent):
            raise InputError(f"{photo}: in a shard, so no text file goes beside it; give --txt-dir")
        for name in (f"{photo.stem}.txt", f"{photo.name}.txt"):
            path = photo.parent / name
            if str(path).casefold() not in taken:
                break
        else:
            raise InputError(f"{photo}: its text file {path} would replace another; give --txt-dir")
        taken.add(str(path).casefold())
        names[photo] = path
    return names


def _writes_texts(options: argparse.Namespace) -> bool:
    return bool(options.txt or options.txt_dir)
