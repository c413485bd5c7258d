"""Checks a data set for faults before training."""

import os
from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from captioning.data.images import MAX_PIXELS, read_image
from captioning.data.photo_files import photo_hash
from captioning.data.readers import Contents, Problem, Reader
from captioning.data.tokenizers import characters
from captioning.errors import InputError, printable
from captioning.progress_bar import ProgressBar
from captioning.threads import read_ahead

NAMED = 20  # problems of each kind that a report names; further ones are only counted
AHEAD = 32  # photos


@dataclass(frozen=True)
class Check:
    """What the splits of a data set hold, faults included; `str` gives a readable report.

    Attributes:
        reader: of the data set.
        splits: the contents of each split, with its problems.
        faulty: the photos that are missing, cannot be read, or are in an earlier split too.
    """

    reader: Reader
    splits: dict[str, Contents]
    faulty: frozenset[Path]

    @property
    def ok(self) -> bool:
        """Whether no split has problems."""
        return not any(split.problems for split in self.splits.values())

    def __str__(self) -> str:
        rows: list[Any] = [("split", "images", "captions", "min / mean / max", "objects")]
        notes: list[str] = []
        lengths: list[int] = []
        abspath = os.path.abspath  # not resolving links
        folders = tuple(f"{abspath(folder)}{os.sep}" for folder in self.reader.folders)
        for name, split in self.splits.items():
            counts = [len(record.captions) for record in split.records] or [0]
            per_image = f"{min(counts)} / {sum(counts) / len(counts):.1f} / {max(counts)}"
            objects = sum(len(record.objects) for record in split.records)
            rows.append((name, len(split.records), sum(counts), per_image, objects))
            lengths += [len(characters(text)) for each in split.records for text in each.captions]
            by_kind = defaultdict(list)
            for problem in split.problems:
                by_kind[problem.kind].append(problem.name)
            for kind, names in by_kind.items():
                notes += [f"{name}: {kind} ({len(names)})", *(f"  {n}" for n in names[:NAMED])]
                notes += [f"  and {len(names) - NAMED} more"] if len(names) > NAMED else []
            photos = [record.image for record in split.records]
            if outside := [photo for photo in photos if not abspath(photo).startswith(folders)]:
                note = f"{len(outside)} outside the data set's folder, such as {outside[0]}"
                notes.append(f"{name}: not a problem: {note}")
        width = max(len(name) for name, *_ in rows)
        table = (f"{name:{width}}  {a:>8}  {b:>8}  {c:>18}  {d:>8}" for name, a, b, c, d in rows)
        lines = [f"{self.reader.root} ({type(self.reader).__name__})", *table, *notes]
        if lengths:
            most = sorted(lengths)[(len(lengths) - 1) * 99 // 100]
            lines.append(
                f"words of a caption: {sum(lengths) / len(lengths):.1f} on average, at most {most} "
                f"in 99 of 100, {max(lengths)} in the longest"
            )
        count = sum(len(split.problems) for split in self.splits.values())
        lines.append(f"Problems found: {count}" if count else "No problems found")
        return "\n".join(map(printable, lines))


def check(reader: Reader, progress: bool = True, max_pixels: int = MAX_PIXELS) -> Check:
    """Read every split and decode every image of it.

    An image counts as being in two splits if both name the same file, or files of equal bytes.
    Images of more than `max_pixels` count as unreadable.
    """
    splits = {}
    for split in reader.splits:
        try:
            splits[split] = reader.contents(split)
            if not splits[split].records:
                splits[split].problems.append(Problem("no captions", str(reader.root)))
        except InputError as error:
            splits[split] = Contents([], [Problem("cannot be read", str(error))])
    images = sorted({record.image for contents in splits.values() for record in contents.records})
    looked_at = read_ahead(partial(_hash_and_fault, max_pixels=max_pixels), images, AHEAD)
    with ProgressBar("check", "images", total=len(images), shown=progress) as bar:
        found = {}
        for image, each in zip(images, looked_at, strict=True):
            found[image] = each
            bar.update()
    faulty = {image for image, (_, fault) in found.items() if fault}
    seen: dict[str, tuple[str, Path]] = {}
    for split, contents in splits.items():
        for record in contents.records:
            content, fault = found[record.image]
            contents.problems.extend([fault] if fault else [])
            first, image = seen.setdefault(content, (split, record.image))
            if first != split:
                name = f"{record.image} is {image} of {first}"
                contents.problems.append(Problem("images that are in another split too", name))
                faulty.add(record.image)
    return Check(reader, splits, frozenset(faulty))


def _hash_and_fault(image: Path, max_pixels: int) -> tuple[str, Problem | None]:
    """A text that is the same for equal files, and what is wrong with this one."""
    try:
        if (found := photo_hash(image)) is None:
            return str(image), Problem("missing image files", str(image))
        read_image(image, max_pixels)
    except InputError as error:
        return str(image), Problem("unreadable images", str(error))
    return found, None
