"""Dynamic batching: photos of concurrent requests are captioned as one batch."""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import TypeVar

from captioning.captioner import Caption, Captioner
from captioning.data.images import Upload
from captioning.data.preprocessing import View
from captioning.maps import MAPS
from captioning.search import Search
from captioning.serving.memory import give_back

PATIENCE = 0.02
"""The most seconds that a photo waits for others that are being read."""

READERS = 2
"""Threads that decode photos; very large photos are decoded one at a time."""

TIDY = 5.0
"""Seconds between returns of free memory to the system; each takes a few milliseconds."""

Result = TypeVar("Result")


@dataclass(frozen=True, eq=False)
class _Waiting:
    """A photo that waits for its captions.

    Attributes:
        view: what the model sees of it.
        search: how words are chosen.
        most: how many captions are wanted.
        runners_up: how many alternatives to report for each word.
        maps: the maps of each word.
        captions: the future result; cancelled when the client has gone.
        since: when it was queued, in seconds of `monotonic`.
    """

    view: View
    search: Search
    most: int
    runners_up: int
    maps: tuple[str, ...]
    captions: asyncio.Future[list[Caption]]
    since: float = field(default_factory=monotonic)

    @property
    def kind(self) -> tuple[str, int, tuple[str, ...]]:
        """Photos of the same kind can share a batch."""
        return repr(self.search.config), self.runners_up, self.maps

    @property
    def is_alone(self) -> bool:
        """Whether it is a batch by itself, as its maps take so long that others would wait."""
        return not all(MAPS[name].takes_one_pass for name in self.maps)


class Batcher:
    """Batches the photos that arrive while the model is busy.

    A photo that arrives alone is captioned at once. The model runs in one thread while other
    threads read photos.

    Args:
        captioner: the model.
        batch_size: the most photos per batch.

    Attributes:
        photos: how many have been captioned.
        batches: how many batches they came in.
    """

    def __init__(self, captioner: Captioner, batch_size: int) -> None:
        self.captioner = captioner
        self.batch_size = batch_size
        self.photos = 0
        self.batches = 0
        self._waiting: list[_Waiting] = []
        self._being_read = 0
        self._tidied = monotonic()
        self._news = asyncio.Event()
        self._readers = ThreadPoolExecutor(READERS, "reader")
        self._model = ThreadPoolExecutor(1, "model")

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Caption queued photos while the block lasts."""
        work = asyncio.create_task(self._work())
        try:
            yield
        finally:
            work.cancel()
            for threads in (self._readers, self._model):
                threads.shutdown(cancel_futures=True)

    async def captions(
        self, photo: Upload, search: Search, most: int, runners_up: int, maps: tuple[str, ...]
    ) -> list[Caption]:
        """The captions that the search finds, the best first; see `Captioner.candidates`.

        When cancelled, its photo leaves the queue.

        Args:
            photo: as it was sent.
            search: how words are chosen.
            most: how many captions, if the search finds as many.
            runners_up: how many alternatives to report for each word.
            maps: the maps of each word, the first to be shown.

        Raises:
            InputError: the photo cannot be read.
        """
        self._being_read += 1
        try:
            view = await self.in_reader(self.captioner.view, photo)
        finally:
            self._being_read -= 1
            self._news.set()
        captions = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(view, search, most, runners_up, maps, captions))
        found = await captions
        return found[:most]

    async def in_reader(self, function: Callable[..., Result], *arguments: object) -> Result:
        """The result of a function that reads a photo, called in one of the reader threads."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._readers, function, *arguments)

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            batch = await self._batch()
            try:
                found = await loop.run_in_executor(self._model, self._captioned, batch)
            except Exception as error:  # fails these requests only, whatever it is
                for waiting in batch:
                    if not waiting.captions.done():
                        waiting.captions.set_exception(error)
                continue
            self.photos += len(batch)
            self.batches += 1
            for waiting, captions in zip(batch, found, strict=True):
                if not waiting.captions.done():
                    waiting.captions.set_result(captions)

    async def _batch(self) -> list[_Waiting]:
        """The next batch: the photo queued first, and others of its kind."""
        while True:
            self._waiting = [photo for photo in self._waiting if not photo.captions.done()]
            patience = None
            if self._waiting:
                first = self._waiting[0]
                alike = [photo for photo in self._waiting if photo.kind == first.kind]
                size = 1 if first.is_alone else self.batch_size
                batch = alike[:size]
                patience = first.since + PATIENCE - monotonic()
                if len(batch) == size or not self._being_read or patience <= 0:
                    self._waiting = [photo for photo in self._waiting if photo not in batch]
                    return batch
            self._news.clear()
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._news.wait(), patience)

    def _captioned(self, batch: list[_Waiting]) -> list[list[Caption]]:
        if monotonic() > self._tidied + TIDY:
            give_back()
            self._tidied = monotonic()
        first = batch[0]
        return self.captioner.candidates(
            [photo.view for photo in batch],
            first.search,
            first.runners_up,
            first.maps,
            most=max(photo.most for photo in batch),
        )
