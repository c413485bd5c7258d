"""Shards of captions: files of JSON lines, each written atomically."""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path

from captioning.errors import InputError
from captioning.files import written_whole
from captioning.inference.batches import cut
from captioning.untrusted import json_of

NAME = re.compile(r"captions-(\d{5,})\.jsonl")


class Shards:
    """The files captions-00000.jsonl, captions-00001.jsonl, ... in a folder.

    A photo's index in the stream alone decides which file its line belongs to.

    Args:
        folder: the folder.
        size: lines in each file; the last may have fewer.
    """

    def __init__(self, folder: Path, size: int) -> None:
        self.folder = folder
        self.size = size

    def path(self, number: int) -> Path:
        """The path of the shard of this number."""
        return self.folder / f"captions-{number:05d}.jsonl"

    def cut(self, photos: Iterable[Path]) -> Iterator[tuple[int, list[Path]]]:
        """The number and the photos of one shard after another."""
        return enumerate(cut(photos, self.size))

    def numbers(self) -> Iterator[int]:
        """The numbers of the existing shards, in no order."""
        for file in self.folder.iterdir():
            if match := NAME.fullmatch(file.name):
                yield int(match[1])

    def write(self, number: int, lines: Sequence[str]) -> None:
        """Write a shard atomically.

        Raises:
            InputError: the folder cannot be written to.
        """
        with written_whole(self.path(number)) as temporary:
            # Bytes of a file name that are not UTF-8 become \udcXX, as in JSON's escapes.
            temporary.write_text(
                "".join(f"{line}\n" for line in lines),
                encoding="utf-8",
                errors="backslashreplace",
            )

    def unreadable(self, number: int, photos: Sequence[Path]) -> int:
        """The number of unreadable photos in a finished shard.

        Raises:
            InputError: its lines are not of these photos.
        """
        path, errors = self.path(number), 0
        with path.open("rb") as lines:
            for place, (line, photo) in enumerate(zip_longest(lines, photos), start=1):
                entry = _object(line)
                if photo is None or entry.get("image") != str(photo):
                    expected = "should not be there" if photo is None else f"is not of {photo}"
                    raise InputError(
                        f"{path}: line {place} {expected}; the photos have changed since it was "
                        "written: give another --out, or remove the file to have it written anew"
                    )
                errors += "error" in entry
        return errors

    def remove_unfinished(self) -> None:
        """Remove temporary files of killed processes."""
        for file in self.folder.glob(".captions-*.jsonl"):
            file.unlink(missing_ok=True)


def _object(line: bytes | None) -> dict[str, object]:
    try:
        value = json_of(line or b"")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
