"""Answers requests for captions: decodes the photos, batches them, and captions each batch."""

import asyncio
import io
from collections.abc import Coroutine, Sequence
from typing import Annotated, Any, TypeVar

from fastapi import File, Request, UploadFile
from fastapi.responses import JSONResponse
from starlette.requests import ClientDisconnect

from captioning.captioner import Caption, Captioner
from captioning.data.preprocessing import View
from captioning.errors import InputError, raise_errors
from captioning.serving.batching import Batcher
from captioning.serving.decoding import PROCESSES, Decoders
from captioning.serving.form import CaptionForm, ReviewForm, Settings
from captioning.serving.protection import Limits
from captioning.threads import thread_count
from captioning.viewing import viewer

Result = TypeVar("Result")

VIEW_RUNNERS_UP = 3  # the alternatives that the view shows for each word


class CaptionService:
    """Captions the photos of concurrent requests.

    Args:
        captioner: what captions the photos, by its own search unless requests say otherwise.
        batch_size: the most photos per batch; a CPU captions several batches at once.
        limits: of requests.
        maps: those that requests may choose, the first by default.
        decoders: processes that decode the photos.
    """

    def __init__(
        self,
        captioner: Captioner,
        batch_size: int,
        limits: Limits,
        maps: Sequence[str],
        decoders: Decoders,
    ) -> None:
        self.captioner = captioner
        self.maps = maps
        self.decoders = decoders
        self._batch_size = batch_size
        photos_at_once = batch_size * thread_count(captioner.device)
        self.batcher = Batcher(self._caption_batch, photos_at_once, limits.queue)

    async def caption(self, request: Request, form: Annotated[CaptionForm, File()]) -> JSONResponse:
        """Captions of a photo, each word with its probability; of several photos, in their order.

        One of several photos that cannot be captioned has an error in its place.
        """
        return await self._respond(request, form)

    async def review(self, request: Request, form: Annotated[ReviewForm, File()]) -> JSONResponse:
        """A review of a caption: does the photo bear it out, and each of its words?

        Several photos are answered as for captions.
        """
        return await self._respond(request, form)

    async def caption_photo(self, request: Request, photo: bytes) -> Caption:
        """The caption of a photo, by the model's own search."""
        client = request.client.host if request.client else ""
        settings = Settings(self.captioner.search, captions=1, view=False, maps=(), text=None)

        async def answer() -> Caption:
            upload = UploadFile(io.BytesIO(photo))
            view, _ = await self.decoders.decode(upload, self.captioner.preprocessing, 0, client)
            [caption] = await self.batcher.captions(view, settings, client)
            return caption

        with self.batcher.places(1, client):
            return await _unless_gone(request, answer())

    async def _respond(self, request: Request, form: CaptionForm | ReviewForm) -> JSONResponse:
        settings = await asyncio.to_thread(form.settings, self.captioner, self.maps)
        client = request.client.host if request.client else ""
        with self.batcher.places(len(form.photo), client):
            answers = await _unless_gone(request, self._answers(form.photo, settings, client))
        if len(answers) == 1:
            if isinstance(answers[0], BaseException):
                raise answers[0]
            return JSONResponse(answers[0])
        photos: list[dict[str, Any]] = []
        for answer in answers:
            if isinstance(answer, InputError):
                photos.append({"error": str(answer)})
            elif isinstance(answer, BaseException):
                raise answer
            else:
                photos.append(answer)
        return JSONResponse({"photos": photos})

    async def _answers(
        self, uploads: Sequence[UploadFile], settings: Settings, client: str
    ) -> list[dict[str, Any] | BaseException]:
        """The answer to each photo, or its error, once all have ended."""
        turns = asyncio.Semaphore(PROCESSES)  # so that the client's other requests go between
        answers = (self._answer(upload, settings, client, turns) for upload in uploads)
        return await asyncio.gather(*answers, return_exceptions=True)

    async def _answer(
        self, upload: UploadFile, settings: Settings, client: str, turns: asyncio.Semaphore
    ) -> dict[str, Any]:
        long_side = viewer.LONG_SIDE if settings.view else 0
        async with turns:
            view, photo = await self.decoders.decode(
                upload, self.captioner.preprocessing, long_side, client
            )
        captions = await self.batcher.captions(view, settings, client)
        answer: dict[str, Any] = {"captions": [caption.as_json() for caption in captions]}
        if settings.review:
            answer = answer["captions"][0]["review"]
        if settings.view:
            views = [caption.view() for caption in captions]
            answer["view"] = viewer.data_of(photo, view.size, views)
        return answer

    def _caption_batch(
        self, views: Sequence[View], settings: Sequence[Settings]
    ) -> list[list[Caption]]:
        """The captions of each view, the best first; the settings share their `batch_key`."""
        shared = settings[0]
        runners_up = VIEW_RUNNERS_UP if shared.view else 0
        texts = [photo.text for photo in settings if photo.text is not None]
        most_captions = max(photo.captions for photo in settings)
        best_captions = raise_errors(
            self.captioner.stream(
                views,
                shared.search,
                shared.maps,
                runners_up,
                most_captions,
                self._batch_size,
                texts=texts or None,
            )
        )
        return [[best, *best.others] for best in best_captions]


async def _unless_gone(request: Request, answer: Coroutine[Any, Any, Result]) -> Result:
    """The answer; cancelled, with ClientDisconnect, when the client closes the connection."""

    async def departure() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    work, watch = asyncio.create_task(answer), asyncio.create_task(departure())
    try:
        await asyncio.wait((work, watch), return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            raise ClientDisconnect
        return work.result()
    finally:
        work.cancel()
        watch.cancel()
