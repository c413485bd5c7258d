"""Bulk captioning of any number of photos into shards of JSON lines."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from captioning.captioner.captioner import Captioner
from captioning.data.preprocessing import View
from captioning.errors import InputError
from captioning.inference.batches import best_captions, cut, json_line, read_ahead, seed_batch
from captioning.inference.manifest import Manifest
from captioning.inference.photo_stream import Count, PhotoStream
from captioning.inference.shards import Shards
from captioning.inference.work import Work
from captioning.progress_bar import ProgressBar, say
from captioning.search.search import Search


class Tally(NamedTuple):
    """The counts of a finished work.

    Attributes:
        photos: number of photos in the stream.
        digest: of their paths in order.
        unreadable: number of photos with an error in place of a caption.
    """

    photos: int
    digest: str
    unreadable: int


class Place(NamedTuple):
    """Where a batch belongs; a batch never spans two shards.

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
    """Captions for a stream of photos, in shards; existing shards are skipped.

    Process p of P writes the shards p, p + P, ...

    Args:
        captioner: the model.
        search: how words are chosen.
        photos: the photos.
        shards: the output files.
        manifest: beside the shards.
        batch_size: photos per batch.
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
        """Check that the folder fits this work, and write the manifest.

        Raises:
            InputError: the folder holds captions of other photos or with other settings, or there
                are no photos.
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
        """The batches of the shards that this process has to write, with views of their photos."""
        with ProgressBar(
            "captioning" if processes == 1 else f"process 1 of {processes}",
            "photos",
            total=self._to_do,
            shown=process == 0,
        ) as progress:
            for batch in read_ahead(self.captioner, self._missing(process, processes)):
                yield batch
                progress.update(len(batch[1]))

    def step(self, batch: Batch) -> None:
        """Caption a batch, and write its shard after the shard's last batch."""
        place, paths, views = batch
        seed_batch(self.seed, place.first)
        for path, caption in zip(
            paths, best_captions(self.captioner, views, self.search), strict=True
        ):
            if isinstance(caption, InputError):
                say(f"captioning: {caption}")
                self._unreadable += 1
            self._lines.append(json_line(path, caption))
        if place.is_last:
            self.shards.write(place.shard, self._lines)
            self._lines = []

    def result(self) -> Tally:
        """The tally of the stream as this process saw it."""
        return Tally(self._count.photos, self._count.digest, self._unreadable)

    def finish(self, tallies: Sequence[Tally]) -> Tally:
        """Mark the manifest as complete; called in the first process.

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
        """The tally before the work, and how many photos the first process has to caption."""
        count, shards, unreadable, missing = Count(), 0, 0, 0
        with ProgressBar("looking for photos", "photos") as progress:
            for number, photos in self.shards.cut(count.passing(self.photos)):
                shards = number + 1
                if self.shards.path(number).exists():
                    unreadable += self.shards.unreadable(number, photos)
                elif number % processes == 0:
                    missing += len(photos)
                progress.update(len(photos))
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
