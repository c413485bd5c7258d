"""Bulk captioning: any number of photos become shards of JSON lines."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tqdm import tqdm

from captioning.captioner.captioner import Captioner
from captioning.data.preprocessing import View
from captioning.errors import InputError
from captioning.inference.batches import best_captions, cut, json_line, read_ahead, seed_batch
from captioning.inference.manifest import Manifest
from captioning.inference.photo_stream import Count, PhotoStream
from captioning.inference.shards import Shards
from captioning.inference.work import Work
from captioning.search.search import Search


class Tally(NamedTuple):
    """What there is in the end.

    Attributes:
        photos: all that were in the stream.
        digest: of their paths in order.
        unreadable: those that have an error in place of a caption.
    """

    photos: int
    digest: str
    unreadable: int


class Place(NamedTuple):
    """Where a batch belongs; a batch never crosses the border of a shard.

    Attributes:
        shard: the shard's number.
        first: number of the batch's first photo in the whole stream.
        is_last: whether the batch ends its shard.
    """

    shard: int
    first: int
    is_last: bool


Batch = tuple[Place, Sequence[Path], list[View | InputError]]


class BulkCaptioning(Work):
    """Captions for a stream of photos, in shards that are skipped where they are there already.

    Process p of P makes the shards p, p + P, ...

    Args:
        captioner: the model.
        search: how words are chosen.
        photos: what to caption.
        shards: where the captions go.
        manifest: beside the shards.
        batch_size: photos captioned at a time.
        seed: of sampling.
    """

    def __init__(
        self,
        captioner: Captioner,
        search: Search,
        photos: PhotoStream,
        shards: Shards,
        manifest: Manifest,
        batch_size: int = 16,
        seed: int = 0,
    ) -> None:
        self.captioner = captioner
        self.search = search
        self.photos = photos
        self.shards = shards
        self.manifest = manifest
        self.batch_size = batch_size
        self.seed = seed
        self._found = Tally(0, "", 0)
        self._to_do: int | None = None
        self._count = Count()
        self._unreadable = 0
        self._lines: list[str] = []

    def prepare(self, processes: int) -> None:
        """Compare the folder with what is to be done, and say in the manifest what that is.

        Raises:
            InputError: the folder holds captions of other photos, or made otherwise, or there are
                no photos.
        """
        self.manifest.check()
        if not self.manifest.path.exists() and any(True for _ in self.shards.numbers()):
            raise InputError(
                f"{self.shards.folder}: holds captions without the {self.manifest.path.name} that "
                "says what they were made with; give another folder to --out"
            )
        found, missing = self._survey(processes)
        if not found.photos:
            raise InputError("no photos at all; give photos, folders or a --list that names some")
        self.shards.remove_unfinished()
        self.manifest.write()
        self._found, self._to_do = found, missing

    def batches(self, process: int, processes: int) -> Iterator[Batch]:
        """The batches of the shards that this process has to make, their photos read."""
        with tqdm(
            total=self._to_do,
            desc="captioning" if processes == 1 else f"process 1 of {processes}",
            unit="photo",
            leave=False,
            disable=None if process == 0 else True,  # None: shown only on a terminal
        ) as progress:
            for batch in read_ahead(self.captioner, self._missing(process, processes)):
                yield batch
                progress.update(len(batch[1]))

    def step(self, batch: Batch) -> None:
        """Caption a batch, and write its shard where it is the last of it."""
        place, paths, views = batch
        seed_batch(self.seed, place.first)
        for path, caption in zip(
            paths, best_captions(self.captioner, views, self.search), strict=True
        ):
            if isinstance(caption, InputError):
                tqdm.write(f"captioning: {caption}", file=sys.stderr)
                self._unreadable += 1
            self._lines.append(json_line(path, caption))
        if place.is_last:
            self.shards.write(place.shard, self._lines)
            self._lines = []

    def result(self) -> Tally:
        """The stream as this process saw it, and the photos that it could not read."""
        return Tally(self._count.photos, self._count.digest, self._unreadable)

    def finish(self, tallies: Sequence[Tally]) -> Tally:
        """Say in the manifest that all is done; called in the first process.

        Args:
            tallies: the result of every process.

        Raises:
            InputError: the processes did not all see the same photos.
        """
        if any(tally[:2] != self._found[:2] for tally in tallies):
            raise InputError(
                f"{self.shards.folder}: photos came or went while others were captioned; "
                "start again to see which"
            )
        unreadable = self._found.unreadable + sum(tally.unreadable for tally in tallies)
        self.manifest.write(photos=self._found.photos, unreadable=unreadable)
        return self._found._replace(unreadable=unreadable)

    def _survey(self, processes: int) -> tuple[Tally, int]:
        """What there is, and how many photos the first process has to caption."""
        count, shards, unreadable, missing = Count(), 0, 0, 0
        for number, photos in self.shards.cut(count.passing(self.photos)):
            shards = number + 1
            if self.shards.path(number).exists():
                unreadable += self.shards.unreadable(number, photos)
            elif number % processes == 0:
                missing += len(photos)
        for number in self.shards.numbers():
            if number >= shards:
                raise InputError(
                    f"{self.shards.path(number)}: there are no photos for it; they have changed "
                    "since it was written: give another --out, or remove the file"
                )
        return Tally(count.photos, count.digest, unreadable), missing

    def _missing(self, process: int, processes: int) -> Iterator[tuple[Place, list[Path]]]:
        for number, photos in self.shards.cut(self._count.passing(self.photos)):
            if number % processes != process or self.shards.path(number).exists():
                continue
            first = number * self.shards.size
            for start, paths in enumerate(cut(photos, self.batch_size)):
                offset = start * self.batch_size
                is_last = offset + len(paths) == len(photos)
                yield Place(number, first + offset, is_last), paths
