"""Dynamic batching: photos of concurrent requests are captioned as one batch."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

from fastapi import HTTPException

from captioning.captioner import Caption
from captioning.data.preprocessing import View
from captioning.serving.form import Settings


@dataclass(frozen=True, eq=False)
class _Waiting:
    """A photo that waits for its captions."""

    view: View
    settings: Settings
    captions: asyncio.Future[list[Caption]]  # cancelled when the client has gone


class Batcher:
    """Batches the photos that arrive while the model is busy.

    It runs in one thread, and in another one for slow maps, so that no photo waits for another's.

    Args:
        caption: captions a batch of views that share the settings' `batch_key`.
        batch_size: the most photos per batch.
        most_waiting: the most photos that may wait or be captioned at a time.
    """

    def __init__(
        self,
        caption: Callable[[Sequence[View], Sequence[Settings]], list[list[Caption]]],
        batch_size: int,
        most_waiting: int,
    ) -> None:
        self._caption = caption
        self._batch_size = batch_size
        self._most_waiting = most_waiting
        self.waiting = 0  # photos that wait or are being captioned
        self.photos = 0  # that have been captioned
        self.batches = 0  # of photos that were given to `caption`
        self._queue: list[_Waiting] = []
        self._work: dict[bool, asyncio.Task[None]] = {}  # of photos with slow maps, and of others
        self._model = ThreadPoolExecutor(2, "model")

    @contextmanager
    def places(self, photos: int) -> Iterator[None]:
        """Places in the queue for a request's photos, until it is answered.

        Raises:
            HTTPException: too many photos are waiting.
        """
        if self.waiting + photos > self._most_waiting:
            busy = f"{self.waiting} photos are waiting; try again in a moment"
            raise HTTPException(503, busy, {"Retry-After": "1"})
        self.waiting += photos
        try:
            yield
        finally:
            self.waiting -= photos

    async def captions(self, view: View, settings: Settings) -> list[Caption]:
        """The captions of a photo, the best first. If cancelled, the photo leaves the queue."""
        found = asyncio.get_running_loop().create_future()
        self._queue.append(_Waiting(view, settings, found))
        if settings.is_slow not in self._work or self._work[settings.is_slow].done():
            self._work[settings.is_slow] = asyncio.create_task(
                self._caption_queue(settings.is_slow)
            )
        captions: list[Caption] = await found
        return captions[: settings.captions]

    async def _caption_queue(self, are_slow: bool) -> None:
        """Caption the photo queued first, with others of the same settings, until none waits."""
        size = 1 if are_slow else self._batch_size
        while True:
            self._queue = [photo for photo in self._queue if not photo.captions.done()]
            queue = [photo for photo in self._queue if photo.settings.is_slow is are_slow]
            if not queue:
                return
            first = queue[0].settings
            batch = [one for one in queue if one.settings.batch_key == first.batch_key][:size]
            self._queue = [photo for photo in self._queue if photo not in batch]
            await self._answer(batch)

    async def _answer(self, batch: Sequence[_Waiting]) -> None:
        """Caption a batch or, if that fails, each of its photos alone, so that one fails alone."""
        views, settings = [one.view for one in batch], [one.settings for one in batch]
        self.batches += 1
        loop = asyncio.get_running_loop()
        try:
            found = await loop.run_in_executor(self._model, self._caption, views, settings)
        except Exception as error:  # whatever it is, it fails this request only
            if len(batch) > 1:
                for waiting in batch:
                    await self._answer([waiting])
            elif not batch[0].captions.done():
                batch[0].captions.set_exception(error)
            return
        self.photos += len(batch)
        for waiting, captions in zip(batch, found, strict=True):
            if not waiting.captions.done():
                waiting.captions.set_result(captions)
