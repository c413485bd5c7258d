"""The server's addresses, and what each of them answers."""

import asyncio
import json
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Annotated, Any, TypeVar

from fastapi import FastAPI, File, Request, UploadFile
from fastapi.responses import HTMLResponse, JSONResponse
from starlette.requests import ClientDisconnect

from captioning.captioner import Caption, Captioner
from captioning.data.preprocessing import View
from captioning.errors import InputError, raise_errors
from captioning.maps import available_maps
from captioning.serving.answer import EXAMPLES, PARTS, Answer, Answers, Health, Refusal
from captioning.serving.batching import Batcher
from captioning.serving.decoding import PROCESSES, Decoders
from captioning.serving.form import CaptionForm, Settings
from captioning.serving.protection import ERRORS, MEANINGS, Limits, answer_to_error
from captioning.threads import thread_count
from captioning.viewing import viewer
from captioning.viewing.html_document import html_document
from captioning.web.page import STYLES, page

Result = TypeVar("Result")

RUNNERS_UP = 3  # the alternatives that the view shows for each word
FORM_LIMITS: Any = {"max_fields": 20, "max_part_size": 1024}  # bytes


def application(
    captioner: Captioner,
    name: str,
    batch_size: int,
    limits: Limits,
    maps: Sequence[str] = (),
    buttons: str = "",
    tabs: str = "",
    decoders: Decoders | None = None,
) -> FastAPI:
    """The web page and the JSON API of a model; for strangers, put `Protection` before it.

    Args:
        captioner: what captions the photos, by its own search unless requests say otherwise.
        name: of the model, as the page shows it.
        batch_size: the most photos per batch; a CPU captions several batches at once.
        limits: of requests.
        maps: those that requests may choose, the first by default; all of the model if empty.
        buttons: pictures that the page offers, in HTML.
        tabs: links to other pages, in HTML.
        decoders: of another app, to share; by default its own.
    """
    maps = tuple(dict.fromkeys(maps or (captioner.default_map, *available_maps(captioner.model))))

    def caption_batch(views: Sequence[View], settings: Sequence[Settings]) -> list[list[Caption]]:
        first = settings[0]
        runners_up = RUNNERS_UP if first.view else 0
        if first.text is not None:
            return [[captioner.read(view, first.text, runners_up, first.maps)] for view in views]
        most = max(each.captions for each in settings)
        found = captioner.stream(views, first.search, first.maps, runners_up, most, batch_size)
        return [[best, *best.others] for best in raise_errors(found)]

    answers = {name: {"value": example} for name, example in EXAMPLES.items()}
    responses: dict[int | str, dict[str, Any]] = {
        200: {
            "description": "Captions of the photo or, in their order, of several photos.",
            "content": {"application/json": {"examples": answers}},
        },
        **{code: {"model": Refusal, "description": MEANINGS[code]} for code in MEANINGS},
    }
    at_once = batch_size * thread_count(captioner.device)
    batcher = Batcher(caption_batch, at_once, limits.queue)
    decoders = decoders or Decoders(limits)
    app = FastAPI(
        title="captioning",
        summary="Says what is in a photo, and shows where it looked for every word.",
        version="1",
        form_limits=FORM_LIMITS | {"max_files": min(limits.photos, limits.queue)},
        exception_handlers=dict.fromkeys(ERRORS, answer_to_error),
        lifespan=decoders.running,
        docs_url=None,  # these pages load scripts from elsewhere
        redoc_url=None,
    )

    @app.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)
    async def page_of_the_model() -> HTMLResponse:
        return HTMLResponse(
            page(name, captioner.search, limits.bytes, maps, examples=buttons, tabs=tabs)
        )

    @app.api_route("/docs", methods=["GET", "HEAD"], include_in_schema=False)
    async def docs_of_the_api(request: Request) -> HTMLResponse:
        return HTMLResponse(docs(str(request.base_url).rstrip("/"), app.openapi()))

    @app.get("/health", response_model=Health)
    async def health() -> dict[str, str | int]:
        """The model, how many photos wait or are being captioned, and how many have been."""
        counts = {"photos": batcher.photos, "batches": batcher.batches}
        return {"status": "ok", "model": name, "waiting": batcher.waiting, **counts}

    async def answer_of(
        upload: UploadFile, settings: Settings, turns: asyncio.Semaphore
    ) -> dict[str, Any]:
        async with turns:
            long_side = viewer.LONG_SIDE if settings.view else 0
            view, photo = await decoders.seen(upload, captioner.preprocessing, long_side)
        captions = await batcher.captions(view, settings)
        answer: dict[str, Any] = {"captions": [caption.as_json() for caption in captions]}
        if settings.view:
            views = [caption.view() for caption in captions]
            answer["view"] = viewer.data_of(photo, view.size, views)
        return answer

    @app.post("/caption", response_model=Answer | Answers, responses=responses)
    async def caption(request: Request, form: Annotated[CaptionForm, File()]) -> JSONResponse:
        """Captions of a photo, each word with its probability; of several photos, in their order.

        One of several photos that cannot be captioned has an error in its place.
        """
        settings = await asyncio.to_thread(form.settings, captioner, maps)
        turns = asyncio.Semaphore(PROCESSES)  # a request's photos do not go before another's
        with batcher.places(len(form.photo)):
            answering = _results(answer_of(upload, settings, turns) for upload in form.photo)
            answers = await _unless_gone(request, answering)
        is_one, photos = len(answers) == 1, []
        for answer in answers:
            if isinstance(answer, InputError) and not is_one:
                photos.append({"error": str(answer)})
            elif isinstance(answer, BaseException):
                raise answer
            else:
                photos.append(answer)
        return JSONResponse(photos[0] if is_one else {"photos": photos})

    return app


def docs(address: str, openapi: Mapping[str, Any]) -> str:
    """The page that describes the API, with an example for the server's address."""
    return html_document(
        "serving/docs.html",
        "captioning: API",
        STYLES,
        address=address,
        schemas=openapi["components"]["schemas"],
        form=CaptionForm.__name__,
        parts=[part.__name__ for part in PARTS],
        examples={name: json.dumps(example, indent=1) for name, example in EXAMPLES.items()},
        refusals=MEANINGS,
    )


async def _results(
    coroutines: Iterable[Coroutine[Any, Any, Result]],
) -> list[Result | BaseException]:
    """The result or the error of each, once all have ended."""
    return await asyncio.gather(*coroutines, return_exceptions=True)


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
