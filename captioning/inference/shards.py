"""Shards of captions: files of JSON lines, each written whole, and the manifest beside them."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from captioning.captioner.caption import Caption
from captioning.captioner.captioner import Captioner
from captioning.errors import InputError, PhotoError, printable_json
from captioning.files import json_of, read_json, write_json, written_whole
from captioning.search import Search

NAME = re.compile(r"captions-(\d{5,})\.jsonl")
MANIFEST = "manifest.json"


class Line(NamedTuple):
    """A photo's line of JSON, and why it has no caption, if so."""

    text: str
    error: str | None


def captioned_lines(
    captioner: Captioner, search: Search, photos: Sequence[Path], batch_size: int
) -> Iterator[Line]:
    """The line of each photo, in order."""
    captions = captioner.stream(photos, search, batch_size=batch_size)
    for photo, caption in zip(photos, captions, strict=True):
        error = str(caption) if isinstance(caption, PhotoError) else None
        yield Line(json_line(photo, caption), error)


def json_line(photo: Path, caption: Caption | PhotoError, text: str | None = None) -> str:
    """A photo with its caption or its error, as one line of JSON.

    Args:
        photo: the path.
        caption: or why there is none.
        text: the caption as it is written, unless it is the words.
    """
    if isinstance(caption, PhotoError):
        return printable_json({"image": str(photo), "error": str(caption)})
    entry = caption.as_json()
    return printable_json({"image": str(photo), **entry, "caption": text or entry["caption"]})


class Shards:
    """The files captions-00000.jsonl, captions-00001.jsonl, ... in a folder.

    Args:
        folder: the folder.
        size: lines in each file; the last may have fewer.
        settings: plain values, by name, that the captions depend on, for the manifest.
    """

    def __init__(self, folder: Path, size: int, settings: dict[str, Any]) -> None:
        self.folder = folder
        self.size = size
        self.settings = settings

    def path(self, number: int) -> Path:
        """The path of the shard of this number."""
        return self.folder / f"captions-{number:05d}.jsonl"

    def numbers(self) -> list[int]:
        """The numbers of the existing shards."""
        matches = (NAME.fullmatch(file.name) for file in self.folder.iterdir())
        return sorted(int(match[1]) for match in matches if match)

    def write(self, number: int, lines: Sequence[str]) -> None:
        """Write a shard, whole or not at all."""
        with written_whole(self.path(number)) as temporary:
            # Bytes of a file name that are not UTF-8 become \udcXX, as in JSON's escapes.
            temporary.write_text(
                "".join(f"{line}\n" for line in lines),
                encoding="utf-8",
                errors="backslashreplace",
            )

    def lines(self, number: int) -> Iterator[tuple[str, bool]]:
        """The photo of each line of a finished shard, and whether it has a caption.

        Raises:
            InputError: a line is not of a photo.
        """
        path = self.path(number)
        with path.open("rb") as lines:
            for place, line in enumerate(lines, start=1):
                try:
                    entry = json_of(line)
                    photo, has_caption = entry["image"], "error" not in entry
                except (ValueError, TypeError, KeyError):
                    photo = None
                if not isinstance(photo, str):
                    raise InputError(
                        f"{path}: line {place} is not of a photo; remove the file to write it again"
                    )
                yield photo, has_caption

    def remove_unfinished(self) -> None:
        """Remove temporary files of killed processes."""
        for file in self.folder.glob(".captions-*.jsonl"):
            file.unlink(missing_ok=True)

    def check_manifest(self) -> None:
        """Compare the settings with those of an existing manifest, if any.

        Raises:
            InputError: the folder was begun with other settings, which are named, or holds captions
                without a manifest.
        """
        path = self.folder / MANIFEST
        if not path.exists():
            if self.numbers():
                raise InputError(
                    f"{self.folder}: holds captions without the {MANIFEST} of their settings; "
                    "give another folder to --out"
                )
            return
        begun = read_json(path)
        if not isinstance(begun, dict):
            raise InputError(f"{path}: not a manifest of captions; give another folder to --out")
        for name, now in self.settings.items():
            then = begun.get(name)
            if then != now:
                raise InputError(
                    f"{self.folder}: begun with {_difference(name, then, now)}; "
                    "resume with the same settings, or give another folder to --out"
                )

    def write_manifest(self, **finished: int) -> None:
        """Write the manifest, with the final counts once no captions are missing."""
        write_json(self.folder / MANIFEST, {**self.settings, "finished": finished or None})


def _difference(name: str, then: Any, now: Any) -> str:
    """A setting's old and new value, in words."""
    if name == "model":
        return "another model"
    if isinstance(then, dict) and isinstance(now, dict):
        changed = [key for key in {**then, **now} if then.get(key) != now.get(key)]
        then, now = ({key: side.get(key) for key in changed} for side in (then, now))
    return f"another {name}, {_shown(then)} and not {_shown(now)}"


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {part}" for key, part in value.items())
    return " ".join(value) if isinstance(value, list) else str(value)
