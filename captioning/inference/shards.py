"""Captions as files of JSON lines, each whole or not there."""

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

    A photo's place in the stream of photos decides which file its line belongs to, whoever writes
    it.

    Args:
        folder: where they are.
        size: lines in each but the last one.
    """

    def __init__(self, folder: Path, size: int) -> None:
        self.folder = folder
        self.size = size

    def path(self, number: int) -> Path:
        """Where the shard of this number is, or will be."""
        return self.folder / f"captions-{number:05d}.jsonl"

    def cut(self, photos: Iterable[Path]) -> Iterator[tuple[int, list[Path]]]:
        """The number and the photos of one shard after another."""
        return enumerate(cut(photos, self.size))

    def numbers(self) -> Iterator[int]:
        """The numbers of the shards that there are, in no order."""
        for file in self.folder.iterdir():
            if match := NAME.fullmatch(file.name):
                yield int(match[1])

    def write(self, number: int, lines: Sequence[str]) -> None:
        """Write a shard, whole or not at all.

        Raises:
            InputError: the folder cannot be written to.
        """
        with written_whole(self.path(number)) as temporary:
            # What is no UTF-8 in a file name becomes \udcXX, which is how JSON escapes it.
            temporary.write_text(
                "".join(f"{line}\n" for line in lines),
                encoding="utf-8",
                errors="backslashreplace",
            )

    def unreadable(self, number: int, photos: Sequence[Path]) -> int:
        """How many photos of a finished shard could not be read.

        Raises:
            InputError: its lines are not of these photos.
        """
        path, errors = self.path(number), 0
        with path.open("rb") as lines:
            for place, (line, photo) in enumerate(zip_longest(lines, photos), start=1):
                told = _object(line)
                if photo is None or told.get("image") != str(photo):
                    expected = "should not be there" if photo is None else f"is not of {photo}"
                    raise InputError(
                        f"{path}: line {place} {expected}; the photos have changed since it was "
                        "written: give another --out, or remove the file to have it written anew"
                    )
                errors += "error" in told
        return errors

    def remove_unfinished(self) -> None:
        """Remove what a process that was killed had begun to write."""
        for file in self.folder.glob(".captions-*.jsonl"):
            file.unlink(missing_ok=True)


def _object(line: bytes | None) -> dict[str, object]:
    try:
        told = json_of(line or b"")
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}
