"""Captions any number of photos into shards of JSON lines; a photo that has a line is done."""

import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from itertools import count as from_zero
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from captioning.captioner.captioner import Captioner
from captioning.configurable import bare_name
from captioning.data.photos import find_photos
from captioning.data.ranks import decided_by_first_rank
from captioning.errors import InputError, UsageError
from captioning.files import made_folder, only_writer
from captioning.inference.batches import Line, captioned_batches, seeded
from captioning.inference.processes import ALONE, Processes, results
from captioning.inference.ray_cluster import RayCluster, lines_by_ray
from captioning.inference.shards import Shards
from captioning.progress_bar import ProgressBar, is_first_process, say
from captioning.search import Sampling
from captioning.search.search import Search
from captioning.threads import cut

Parts = Iterable[tuple[int, list[Path]]]
"""The number and the photos of each shard."""


class PhotoStream:
    """The photos of paths and a list, in a fixed order and never all in memory.

    Args:
        paths: photos and folders.
        listed: a text file of further photos, one path a line; not a pipe, since it is read often.
    """

    def __init__(self, paths: Sequence[str | Path], listed: str | Path | None = None) -> None:
        self.paths = [Path(path) for path in paths]
        self.listed = None if listed is None else Path(listed)
        if self.listed is not None and self.listed.exists() and not self.listed.is_file():
            raise UsageError(
                f"{self.listed}: cannot be read more than once; write the list to a file"
            )

    def __iter__(self) -> Iterator[Path]:
        """See `captioning.data.photos.find_photos`."""
        return find_photos(self.paths, self.listed)


class Done:
    """The photos that have lines in shards, in 16 bytes of memory for each.

    Args:
        shards: the shards.
        numbers: which of them are read.

    Attributes:
        unreadable: number of lines with an error instead of a caption.
    """

    def __init__(self, shards: Shards, numbers: Sequence[int]) -> None:
        self.unreadable = 0
        self._digests, self._lines = np.unique(
            np.fromiter(self._read(shards, numbers), np.uint64), return_counts=True
        )

    def _read(self, shards: Shards, numbers: Sequence[int]) -> Iterator[int]:
        for number in numbers:
            for photo, has_caption in shards.lines(number):
                self.unreadable += not has_caption
                yield _digest(photo)

    def take(self, photo: Path) -> bool:
        """Whether a line is of this photo; a photo that comes twice needs two lines."""
        digest = np.uint64(_digest(str(photo)))
        place = np.searchsorted(self._digests, digest)
        if place == len(self._digests) or self._digests[place] != digest or not self._lines[place]:
            return False
        self._lines[place] -= 1
        return True

    @property
    def left(self) -> int:
        """Number of lines whose photos did not come."""
        return int(self._lines.sum())


def _digest(photo: str) -> int:
    name = photo.encode("utf-8", "surrogatepass")  # names need not be UTF-8
    return int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "big")


class Survey(NamedTuple):
    """What a folder of captions holds of a stream of photos.

    Attributes:
        photos: number of photos.
        unreadable: number of lines with an error instead of a caption.
        missing: number of photos without a line yet, by the rank of the process.
        numbers: of the shards that were read.
        gone: number of lines whose photos are not in the stream.
    """

    photos: int
    unreadable: int
    missing: list[int]
    numbers: list[int]
    gone: int


def caption_into_shards(
    captioner: Captioner,
    search: Search,
    photos: PhotoStream,
    shards: Shards,
    batch_size: int = 16,
    seed: int = 0,
    processes: Processes = ALONE,
    cluster: RayCluster | None = None,
) -> Survey | None:
    """Caption the photos of a stream that have no line yet.

    They are cut into shards with the first free numbers. Process p of P writes the shards p, p + P,
    ... of these, so the files do not depend on the number of processes. With a Ray cluster, this
    process writes the shards that the machines there caption.

    Returns:
        The survey of the finished folder; None in all processes but the first.

    Raises:
        InputError: the folder holds captions with other settings, another process writes there,
            there are no photos, or they or the captions have changed meanwhile.
        UsageError: this machine has too few devices, or no cluster answers.
    """
    search = seeded(search, seed)

    def caption_parts(parts: Parts, missing: int) -> Iterator[tuple[int, Iterable[list[Line]]]]:
        if cluster is not None and missing:
            size = math.ceil(missing / shards.size)
            return lines_by_ray(cluster, captioner, search, parts, size, batch_size)
        return (
            (number, captioned_batches(captioner, search, part, batch_size))
            for number, part in parts
        )

    def caption_share(process: int, count: int) -> None:
        found = decided_by_first_rank(lambda: _begin(photos, shards, count))
        with ProgressBar(
            "captioning" if count == 1 else f"process 1 of {count}",
            "photos",
            total=found.missing[process],
            shown=process == 0,
        ) as progress:
            parts = enumerate(_missing(photos, shards, found.numbers))
            mine = (each for place, each in parts if place % count == process)
            for number, batches in caption_parts(mine, found.missing[process]):
                lines: list[str] = []
                for batch in batches:
                    for line in batch:
                        if line.error is not None:
                            say(f"captioning: {line.error}")
                        lines.append(line.text)
                    progress.update(len(batch))
                shards.write(number, lines)

    # The first process holds the folder for all.
    with only_writer(shards.folder) if is_first_process() else nullcontext():
        if results(captioner, caption_share, processes) is None:
            return None
        made_folder(shards.folder)  # unless it was removed
        found = survey(photos, shards, 1)
        if any(found.missing):
            shards.write_manifest()  # the settings of what is there, for the next call
            raise InputError(
                f"{shards.folder}: {sum(found.missing):,} of {found.photos:,} captions are not "
                "there: photos came, or files were removed, while others were captioned; run the "
                "command again to write them"
            )
        if found.gone:
            say(f"captioning: {shards.folder}: lines of photos that have gone: {found.gone:,}")
        shards.write_manifest(photos=found.photos, unreadable=found.unreadable)
        return found


def survey(photos: PhotoStream, shards: Shards, processes: int) -> Survey:
    """Compare the shards with the photos.

    Raises:
        InputError: a shard is damaged.
    """
    numbers = shards.numbers()
    done = Done(shards, numbers)
    total, new, missing = 0, 0, [0] * processes
    with ProgressBar("looking for photos", "photos") as progress:
        for photo in photos:
            total += 1
            if not done.take(photo):
                missing[new // shards.size % processes] += 1
                new += 1
            progress.update(1)
    return Survey(total, done.unreadable, missing, numbers, done.left)


def _missing(
    photos: PhotoStream, shards: Shards, numbers: Sequence[int]
) -> Iterator[tuple[int, list[Path]]]:
    """The photos without a line in the shards of these numbers, cut into shards of others."""
    done, taken = Done(shards, numbers), set(numbers)
    free = (number for number in from_zero() if number not in taken)
    return zip(free, cut((p for p in photos if not done.take(p)), shards.size), strict=False)


def settings(
    checkpoints: Sequence[Path],
    bf16: bool,
    search: Search,
    seed: int,
    shard_size: int,
    photos: PhotoStream,
) -> dict[str, Any]:
    """The settings that captions depend on, for the manifest."""
    models = [_fingerprint(checkpoint) for checkpoint in checkpoints]
    return {
        "model": models[0] if len(models) == 1 else models,
        "bf16": bf16,
        "search": search.config
        | {"class": bare_name(search.config["class"])}
        | ({"seed": seed} if isinstance(search, Sampling) else {}),
        "shard size": shard_size,
        "photos": [str(path) for path in photos.paths],
        "list": None if photos.listed is None else str(photos.listed),
    }


def _begin(photos: PhotoStream, shards: Shards, processes: int) -> Survey:
    """Check that the folder fits, and write the manifest."""
    shards.check_manifest()
    found = survey(photos, shards, processes)
    if not found.photos:
        raise InputError("no photos at all; give photos, folders or a --list that names some")
    shards.remove_unfinished()
    shards.write_manifest()
    return found


def _fingerprint(checkpoint: Path) -> str:
    digest = hashlib.sha256()
    with checkpoint.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return f"sha256:{digest.hexdigest()}"
