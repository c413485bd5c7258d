"""Checks a data set for faults before training."""

import os
from collections import defaultdict
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from captioning.data.images import MAX_PIXELS, read_image
from captioning.data.photo_files import photo_hash
from captioning.data.readers import DataSet, Problem, Reader
from captioning.data.readers.data_set import UNREADABLE
from captioning.data.tokenizers import characters
from captioning.errors import InputError, printable
from captioning.progress_bar import ProgressBar, stage
from captioning.threads import read_ahead

NAMED = 20  # problems of each kind that a report names; further ones are only counted
PHOTOS_AHEAD = 32  # photos


@dataclass(frozen=True)
class Check:
    """What a data set holds, and all of its problems; `str` gives a readable report.

    Attributes:
        reader: of the data set.
        data_set: what it read.
        problems: those of the data set and of its photos.
        faulty: the photos that are missing, cannot be read, or are in an earlier split too.
        hashes: a hash of each photo's file; the path of a photo that cannot be read.
    """

    reader: Reader
    data_set: DataSet
    problems: list[Problem]
    faulty: frozenset[Path]
    hashes: dict[Path, str]

    @property
    def ok(self) -> bool:
        """Whether there are no problems."""
        return not self.problems

    def __str__(self) -> str:
        rows: list[Any] = [("split", "images", "captions", "min / mean / max", "objects")]
        for name, records in self.data_set.splits.items():
            counts = [len(record.captions) for record in records] or [0]
            per_image = f"{min(counts)} / {sum(counts) / len(counts):.1f} / {max(counts)}"
            objects = sum(len(record.objects) for record in records)
            rows.append((name, len(records), sum(counts), per_image, objects))
        width = max(len(name) for name, *_ in rows)
        table = (f"{name:{width}}  {a:>8}  {b:>8}  {c:>18}  {d:>8}" for name, a, b, c, d in rows)
        lines = [f"{self.reader.root} ({type(self.reader).__name__})", *table]
        for split in (*self.data_set.splits, None):
            lines += self._problem_lines(split)
            lines += self._outside_lines(split)
        lines += self._length_lines()
        count = len(self.problems)
        lines.append(f"Problems found: {count}" if count else "No problems found")
        return "\n".join(map(printable, lines))

    def _problem_lines(self, split: str | None) -> list[str]:
        names_by_kind: dict[str, list[str]] = defaultdict(list)
        for problem in self.problems:
            if problem.split == split:
                names_by_kind[problem.kind].append(problem.name)
        lines: list[str] = []
        for kind, names in names_by_kind.items():
            lines.append(f"{split}: {kind} ({len(names)})" if split else f"{kind} ({len(names)})")
            lines += [f"  {name}" for name in names[:NAMED]]
            if len(names) > NAMED:
                lines.append(f"  and {len(names) - NAMED} more")
        return lines

    def _outside_lines(self, split: str | None) -> list[str]:
        """A line on the photos of a split outside the data set's folders."""
        abspath = os.path.abspath  # not resolving links
        folders = tuple(f"{abspath(folder)}{os.sep}" for folder in self.reader.folders)
        records = self.data_set.splits.get(split or "", [])
        outside = [r.image for r in records if not abspath(r.image).startswith(folders)]
        if not outside:
            return []
        note = f"{len(outside)} outside the data set's folder, such as {outside[0]}"
        return [f"{split}: not a problem: {note}"]

    def _length_lines(self) -> list[str]:
        """A line on the lengths of captions, if there are some."""
        lengths: list[int] = []
        for records in self.data_set.splits.values():
            for record in records:
                lengths += [len(characters(caption)) for caption in record.captions]
        if not lengths:
            return []
        long_caption = sorted(lengths)[(len(lengths) - 1) * 99 // 100]
        return [
            f"words of a caption: {sum(lengths) / len(lengths):.1f} on average, at most "
            f"{long_caption} in 99 of 100, {max(lengths)} in the longest"
        ]


def check(reader: Reader, progress: bool = True, max_pixels: int = MAX_PIXELS) -> Check:
    """Read a data set and decode all of its images.

    An image counts as being in two splits if both name the same file, or files of equal bytes.
    Images of more than `max_pixels` count as unreadable.
    """
    with stage("reading the captions", progress):
        data_set = reader.read()
    problems = list(data_set.problems)
    unreadable_splits = {problem.split for problem in problems if problem.kind == UNREADABLE}
    for split, records in data_set.splits.items():
        if not records and split not in unreadable_splits:
            problems.append(Problem("no captions", str(reader.root), split))
    images = {record.image for records in data_set.splits.values() for record in records}
    contents = _read_contents(sorted(images), progress, max_pixels)
    faulty = {image for image, content in contents.items() if content.fault is not None}
    first_of_content: dict[str, tuple[str, Path]] = {}
    for split, records in data_set.splits.items():
        for record in records:
            content = contents[record.image]
            if content.fault is not None:
                problems.append(replace(content.fault, split=split))
            first_split, first_image = first_of_content.setdefault(
                content.key, (split, record.image)
            )
            if first_split != split:
                name = f"{record.image} is {first_image} of {first_split}"
                problems.append(Problem("images that are in another split too", name, split))
                faulty.add(record.image)
    hashes = {image: content.key for image, content in contents.items()}
    return Check(reader, data_set, problems, frozenset(faulty), hashes)


class Content(NamedTuple):
    """What is in a photo's file."""

    key: str  # equal for equal files
    fault: Problem | None


def _read_contents(images: list[Path], progress: bool, max_pixels: int) -> dict[Path, Content]:
    contents: dict[Path, Content] = {}
    ahead = read_ahead(partial(_read_content, max_pixels=max_pixels), images, PHOTOS_AHEAD)
    with ProgressBar("check", "images", total=len(images), visible=progress) as bar:
        for image, content in zip(images, ahead, strict=True):
            contents[image] = content
            bar.update()
    return contents


def _read_content(image: Path, max_pixels: int) -> Content:
    try:
        key = photo_hash(image)
        if key is None:
            return Content(str(image), Problem("missing image files", str(image)))
        read_image(image, max_pixels)
    except InputError as error:
        return Content(str(image), Problem("unreadable images", str(error)))
    return Content(key, None)
