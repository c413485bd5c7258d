"""Dynamic batching: photos of concurrent requests are captioned as one batch."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

from fastapi import HTTPException

from captioning.captioner import Caption
from captioning.data.preprocessing import View
from captioning.serving.fair_pool import Turns
from captioning.serving.form import Settings


@dataclass(frozen=True, eq=False)
class _Waiting:
    """A photo that waits for its captions."""

    view: View
    settings: Settings
    turn: int  # how many photos of its client are ahead of it
    captions: asyncio.Future[list[Caption]]  # cancelled when the client has gone


class Batcher:
    """Batches the photos that arrive while the model is busy.

    It runs in one thread, and in another one for photos that take long, so that no other waits.
    The queue is fair as `FairPool` is: a client's first photo waits for no second one.

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
        self._places: Counter[str] = Counter()  # the same, by client
        self.photos = 0  # that have been captioned
        self.batches = 0  # of photos that were given to `caption`
        self._queue: list[_Waiting] = []
        self._turns = Turns()
        self._work: dict[bool, asyncio.Task[None]] = {}  # of slow photos, and of others
        self._model = ThreadPoolExecutor(2, "model")

    @contextmanager
    def places(self, photos: int, client: str) -> Iterator[None]:
        """Places in the queue for a request's photos, until it is answered.

        A client that has half of the places gets no more, so that some are left for others.

        Raises:
            HTTPException: too many photos are waiting.
        """
        has_half = 2 * self._places[client] >= self._most_waiting
        if has_half or self.waiting + photos > self._most_waiting:
            busy = f"{self.waiting} photos are waiting; try again in a moment"
            raise HTTPException(503, busy, {"Retry-After": "1"})
        self.waiting += photos
        self._places[client] += photos
        try:
            yield
        finally:
            self.waiting -= photos
            self._places[client] -= photos
            self._places += Counter()  # removes clients without photos

    async def captions(self, view: View, settings: Settings, client: str) -> list[Caption]:
        """The captions of a photo, the best first. If cancelled, the photo leaves the queue."""
        answer: asyncio.Future[list[Caption]] = asyncio.get_running_loop().create_future()
        with self._turns.of_task(client) as turn:
            self._queue.append(_Waiting(view, settings, turn, answer))
            self._start(settings.is_slow)
            return (await answer)[: settings.captions]

    def _start(self, are_slow: bool) -> None:
        """Start to caption the slow photos, or the others, unless this is under way."""
        if are_slow not in self._work or self._work[are_slow].done():
            self._work[are_slow] = asyncio.create_task(self._caption_queue(are_slow))

    async def _caption_queue(self, are_slow: bool) -> None:
        """Caption the photo whose turn it is, with others of its settings, until none waits."""
        size = 1 if are_slow else self._batch_size
        while True:
            self._queue = [photo for photo in self._queue if not photo.captions.done()]
            queue = [photo for photo in self._queue if photo.settings.is_slow is are_slow]
            if not queue:
                return
            queue.sort(key=lambda photo: photo.turn)  # of equal ones the first that came
            key = queue[0].settings.batch_key
            batch = [photo for photo in queue if photo.settings.batch_key == key][:size]
            self._queue = [photo for photo in self._queue if photo not in batch]
            await self._answer(batch)

    async def _answer(self, batch: Sequence[_Waiting]) -> None:
        """Caption a batch or, if that fails, each of its photos alone, so that one fails alone."""
        views, settings = [photo.view for photo in batch], [photo.settings for photo in batch]
        self.batches += 1
        loop = asyncio.get_running_loop()
        try:
            captions = await loop.run_in_executor(self._model, self._caption, views, settings)
        except Exception as error:  # whatever it is, it fails this request only
            if len(batch) > 1:
                for photo in batch:
                    await self._answer([photo])
            elif not batch[0].captions.done():
                batch[0].captions.set_exception(error)
            return
        self.photos += len(batch)
        for photo, photo_captions in zip(batch, captions, strict=True):
            if not photo.captions.done():
                photo.captions.set_result(photo_captions)
