"""Photos of different requests that arrive together are captioned as one batch."""

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
from captioning.search import Search
from captioning.serving.memory import give_back

PATIENCE = 0.02
"""Seconds that a photo waits at most for others that are being read."""

READERS = 2
"""Photos that are decoded at a time, if they are not too large together."""

TIDY = 5.0
"""Seconds after which free memory is given back; it takes a few milliseconds."""

Result = TypeVar("Result")


@dataclass(frozen=True, eq=False)
class _Waiting:
    """A photo that waits for its captions.

    Attributes:
        view: what the model sees of it.
        search: how words are chosen.
        runners_up: how many other words are wanted with each one.
        captions: to be; cancelled where nobody wants them any more.
        since: when it came.
    """

    view: View
    search: Search
    runners_up: int
    captions: asyncio.Future[list[Caption]]
    since: float = field(default_factory=monotonic)

    @property
    def kind(self) -> tuple[str, int]:
        """Photos of the same kind can be captioned together."""
        return repr(self.search.config), self.runners_up


class Batcher:
    """Captions photos, as many at a time as have come while the model was at work.

    A photo that comes alone is captioned at once. The model works in one thread, and photos are
    read in others meanwhile.

    Args:
        captioner: the model.
        batch_size: most photos captioned at a time.

    Attributes:
        photos: captioned so far.
        batches: that they were captioned in.
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
        """Caption what comes as long as the block lasts."""
        work = asyncio.create_task(self._work())
        try:
            yield
        finally:
            work.cancel()
            for threads in (self._readers, self._model):
                threads.shutdown(cancel_futures=True)

    async def candidates(self, photo: Upload, search: Search, runners_up: int) -> list[Caption]:
        """All captions that the search finds, the best first; see `Captioner.candidates`.

        Cancelled, it leaves its place to others.

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
        self._waiting.append(_Waiting(view, search, runners_up, captions))
        return await captions

    async def in_reader(self, function: Callable[..., Result], *arguments: object) -> Result:
        """What a function gives that reads a photo, called where few such run at a time."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._readers, function, *arguments)

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            batch = await self._batch()
            try:
                found = await loop.run_in_executor(self._model, self._captioned, batch)
            except Exception as error:  # of whatever kind: who asked hears of it, others go on
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
        """What is captioned next: the photo that came first, and those of its kind."""
        while True:
            self._waiting = [photo for photo in self._waiting if not photo.captions.done()]
            patience = None
            if self._waiting:
                first = self._waiting[0]
                alike = [photo for photo in self._waiting if photo.kind == first.kind]
                batch = alike[: self.batch_size]
                patience = first.since + PATIENCE - monotonic()
                if len(batch) == self.batch_size or not self._being_read or patience <= 0:
                    self._waiting = [photo for photo in self._waiting if photo not in batch]
                    return batch
            self._news.clear()
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._news.wait(), patience)

    def _captioned(self, batch: list[_Waiting]) -> list[list[Caption]]:
        if monotonic() > self._tidied + TIDY:
            give_back()
            self._tidied = monotonic()
        return self.captioner.candidates(
            [photo.view for photo in batch], batch[0].search, runners_up=batch[0].runners_up
        )
