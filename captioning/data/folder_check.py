"""Checks a data set for faults before training."""

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from captioning.data.images import MAX_PIXELS, read_image
from captioning.data.readers import Problem, Reader
from captioning.data.records import Record
from captioning.errors import InputError
from captioning.progress_bar import ProgressBar
from captioning.terminal import printable

NAMED = 20  # problems of each kind that a report names; further ones are only counted
COLUMNS = ("split", "images", "captions", "min / mean / max", "objects")


@dataclass(frozen=True)
class SplitCheck:
    """The contents and the faults of one split.

    Attributes:
        name: name of the split.
        records: its images with captions.
        problems: the faults.
    """

    name: str
    records: tuple[Record, ...]
    problems: tuple[Problem, ...]

    @property
    def row(self) -> tuple[str, ...]:
        """The split's row in the report."""
        counts = [len(record.captions) for record in self.records] or [0]
        return (
            self.name,
            str(len(self.records)),
            str(sum(counts)),
            f"{min(counts)} / {sum(counts) / len(counts):.1f} / {max(counts)}",
            str(sum(len(record.objects) for record in self.records)),
        )


@dataclass(frozen=True)
class Check:
    """The contents and the faults of a data set; `str` gives a readable report.

    Attributes:
        source: the data set and its format.
        splits: one check for each split.
    """

    source: str
    splits: tuple[SplitCheck, ...]

    @property
    def ok(self) -> bool:
        """Whether no split has problems."""
        return not any(split.problems for split in self.splits)

    def lines(self) -> list[str]:
        """The report: a table of the splits (captions per image), then the problems by kind."""
        rows = [COLUMNS, *(split.row for split in self.splits)]
        width = max(len(name) for name, *_ in rows)
        lines = [self.source]
        for name, images, captions, per_image, objects in rows:
            lines.append(
                f"{name:{width}}  {images:>8}  {captions:>8}  {per_image:>18}  {objects:>8}"
            )
        for split in self.splits:
            for kind in dict.fromkeys(problem.kind for problem in split.problems):
                names = [problem.name for problem in split.problems if problem.kind == kind]
                lines.append(f"{split.name}: {kind} ({len(names)})")
                lines += [f"  {name}" for name in names[:NAMED]]
                if len(names) > NAMED:
                    lines.append(f"  and {len(names) - NAMED} more")
        count = sum(len(split.problems) for split in self.splits)
        lines.append("No problems found" if self.ok else f"Problems found: {count}")
        return [printable(line) for line in lines]

    def __str__(self) -> str:
        return "\n".join(self.lines())


def check(reader: Reader, progress: bool = True, max_pixels: int = MAX_PIXELS) -> Check:
    """Read every split and decode every image of it.

    An image counts as being in two splits if both name the same file, or files of equal bytes.

    Args:
        reader: the data set.
        progress: whether to report progress on stderr.
        max_pixels: images with more pixels count as unreadable.

    Raises:
        InputError: the reader cannot list the splits.
    """
    splits = {split: _contents(reader, split) for split in reader.splits}
    images = {record.image for records, _ in splits.values() for record in records}
    image_checks = _image_checks(sorted(images), progress, max_pixels)
    seen: dict[str, tuple[str, Path]] = {}
    checks = []
    for split, (records, found) in splits.items():
        problems = list(found)
        for record in records:
            image_check = image_checks[record.image]
            problems += image_check.problems
            first, image = seen.setdefault(image_check.identity, (split, record.image))
            if first != split:
                name = f"{record.image} is {image} of {first}"
                problems.append(Problem("images that are in another split too", name))
        checks.append(SplitCheck(split, tuple(records), tuple(problems)))
    return Check(f"{reader.root} ({type(reader).__name__})", tuple(checks))


@dataclass(frozen=True)
class _ImageCheck:
    """The check of one image file; `identity` is equal for equal images."""

    identity: str
    problems: tuple[Problem, ...]


def _contents(reader: Reader, split: str) -> tuple[list[Record], list[Problem]]:
    """The records and problems of a split; an unreadable split counts as a problem."""
    try:
        contents = reader.contents(split)
    except InputError as error:
        return [], [Problem("cannot be read", str(error))]
    if not contents.records:
        return [], [*contents.problems, Problem("no captions", str(reader.root))]
    return contents.records, contents.problems


def _image_checks(images: list[Path], progress: bool, max_pixels: int) -> dict[Path, _ImageCheck]:
    pool = ThreadPoolExecutor(min(8, os.cpu_count() or 1))  # decoding releases the GIL
    try:
        image_checks = {}
        with ProgressBar("check", "images", total=len(images), shown=progress) as bar:
            found = pool.map(partial(_image_check, max_pixels=max_pixels), images)
            for image, image_check in zip(images, found, strict=True):
                image_checks[image] = image_check
                bar.update()
        return image_checks
    finally:
        pool.shutdown(cancel_futures=True)  # an interrupt does not wait for thousands of images


def _image_check(image: Path, max_pixels: int) -> _ImageCheck:
    if not os.path.exists(image):  # noqa: PTH110 - a Path raises where a name is too long
        return _ImageCheck(str(image), (Problem("missing image files", str(image)),))
    try:
        read_image(image, max_pixels)
    except InputError as error:
        return _ImageCheck(str(image), (Problem("unreadable images", str(error)),))
    digest = hashlib.sha256()
    with image.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return _ImageCheck(digest.hexdigest(), ())
