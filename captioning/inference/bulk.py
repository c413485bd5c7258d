"""Captions any number of photos into shards of JSON lines; photos that have a line are skipped."""

import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from captioning.captioner.captioner import Captioner
from captioning.configurable import bare_name
from captioning.data.images import find_photos
from captioning.errors import InputError
from captioning.files import only_writer
from captioning.inference.ray_cluster import RayCluster, lines_by_ray
from captioning.inference.shards import Line, Shards, captioned_lines
from captioning.progress_bar import ProgressBar, say
from captioning.search import Sampling, Search
from captioning.threads import cut


class PhotoList:
    """The photos of paths and a list, in a fixed order and never all in memory.

    Args:
        paths: photos and folders.
        listed: a text file of further photos, one path a line; not a pipe, since it is read often.
    """

    def __init__(self, paths: Sequence[str | Path], listed: str | Path | None = None) -> None:
        self.paths = [Path(path) for path in paths]
        self.listed = None if listed is None else Path(listed)
        if self.listed is not None and self.listed.exists() and not self.listed.is_file():
            raise InputError(
                f"{self.listed}: cannot be read more than once; write the list to a file"
            )

    def __iter__(self) -> Iterator[Path]:
        """See `captioning.data.images.find_photos`."""
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


def caption_into_shards(
    captioner: Captioner,
    search: Search,
    photos: PhotoList,
    shards: Shards,
    batch_size: int = 16,
    cluster: RayCluster | None = None,
) -> int:
    """Caption the photos that have no line yet, into shards with the first free numbers.

    With a Ray cluster, this process writes the shards that the machines there caption.

    Returns:
        The number of photos that cannot be read, those of earlier calls too.

    Raises:
        InputError: the folder holds captions with other settings or is in use, a shard is damaged,
            there are no photos, or no cluster answers.
    """
    with only_writer(shards.folder):
        shards.check_manifest()
        numbers = shards.numbers()
        done = Done(shards, numbers)
        total, missing = 0, 0
        with ProgressBar("looking for photos", "photos") as progress:
            for photo in photos:
                total += 1
                missing += not done.take(photo)
                progress.update()
        if not total:
            raise InputError("no photos at all; give photos, folders or a --list that names some")
        if done.left:
            say(f"captioning: {shards.folder}: lines of photos that have gone: {done.left:,}")
        shards.remove_unfinished()
        shards.write_manifest()
        unreadable, total = done.unreadable, total - missing
        parts = _missing(photos, shards, numbers)
        found: Iterable[tuple[int, Iterable[Line]]] = (
            (number, captioned_lines(captioner, search, part, batch_size)) for number, part in parts
        )
        if cluster is not None and missing:
            size = math.ceil(missing / shards.size)
            found = lines_by_ray(cluster, captioner, search, parts, size, batch_size)
        with ProgressBar("captioning", "photos", total=missing) as progress:
            for number, lines in found:
                texts = []
                for line in lines:
                    if line.error is not None:
                        say(f"captioning: {line.error}")
                        unreadable += 1
                    texts.append(line.text)
                    progress.update()
                shards.write(number, texts)
                total += len(texts)
        shards.write_manifest(photos=total, unreadable=unreadable)
        return unreadable


def _missing(
    photos: PhotoList, shards: Shards, numbers: Sequence[int]
) -> Iterator[tuple[int, list[Path]]]:
    """The photos without a line in the shards of these numbers, cut into shards of others."""
    done, taken = Done(shards, numbers), set(numbers)
    free = (number for number in count() if number not in taken)
    return zip(free, cut((p for p in photos if not done.take(p)), shards.size), strict=False)


def settings(
    checkpoints: Sequence[Path],
    bf16: bool,
    search: Search,
    seed: int,
    shard_size: int,
    photos: PhotoList,
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


def _fingerprint(checkpoint: Path) -> str:
    with checkpoint.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
