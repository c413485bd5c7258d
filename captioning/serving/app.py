"""The server's routes and their handlers."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, FastAPI, File, Request
from fastapi.responses import HTMLResponse, JSONResponse
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp

from captioning.captioner import Caption, Captioner
from captioning.data.images import Upload, read_image
from captioning.maps import MAPS
from captioning.search import Search
from captioning.serving.batching import Batcher
from captioning.serving.docs import docs
from captioning.serving.form import Answer, CaptionForm, Health
from captioning.serving.gate import Gate
from captioning.serving.headers import SafeHeaders
from captioning.serving.hosts import HostCheck, Hosts
from captioning.serving.limits import Limits
from captioning.serving.page import page
from captioning.serving.refusals import Refusal, add_errors
from captioning.serving.uploads import UploadRoute
from captioning.viewing import viewer

RUNNERS_UP = 3
"""How many alternatives the view shows for each word."""

LONGEST_NAME = 100
"""The most characters of a file's name that an error repeats."""

REFUSALS = {
    400: "The form, or the request, cannot be read.",
    403: "The request was sent by a page of another server.",
    408: "The photo took too long to come.",
    413: "The photo, or the whole request, is too large.",
    415: "No image that can be read, or no form.",
    421: "The Host header is none of this server's names.",
    422: "A setting is missing, unknown, or makes no sense.",
    431: "There are too many headers, or too long ones.",
    503: "Too many requests are waiting.",
    504: "The captions took too long.",
}

LOOPBACK = Hosts()

Result = TypeVar("Result")


def application(
    captioner: Captioner,
    search: Search,
    name: str,
    batch_size: int,
    limits: Limits,
    hosts: Hosts = LOOPBACK,
    scenes: APIRouter | None = None,
    maps: Sequence[str] = (),
) -> ASGIApp:
    """The web page and the JSON API of a model.

    Args:
        captioner: the model.
        search: the default search, for requests that set none.
        name: of the model, as the page shows it.
        batch_size: the most photos per batch.
        limits: of requests.
        hosts: the names that the server answers to.
        scenes: an address that draws scenes, which the page then offers; see `serving.demo`.
        maps: the maps of a word that requests may choose, by their names in `captioning.maps`; the
            first for requests that choose none. All if none, the model's `shown_map` first.
    """
    maps = tuple(dict.fromkeys(maps or (captioner.shown_map, *MAPS)))
    batcher = Batcher(captioner, batch_size)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with batcher.running():
            yield

    app = FastAPI(
        title="captioning",
        summary="Says what is in a photo, and shows where it looked for every word.",
        version="1",
        lifespan=lifespan,
        docs_url=None,  # these pages would load scripts from elsewhere
        redoc_url=None,
    )
    app.router.route_class = UploadRoute
    gate = Gate(app, "/caption", limits)
    add_errors(app)
    if scenes is not None:
        app.include_router(scenes)

    @app.get("/", include_in_schema=False)
    async def page_of_the_model() -> HTMLResponse:
        return HTMLResponse(page(name, search, limits, maps, draws_scenes=scenes is not None))

    @app.get("/docs", include_in_schema=False)
    async def docs_of_the_api(request: Request) -> HTMLResponse:
        return HTMLResponse(docs(app.openapi(), str(request.base_url).rstrip("/")))

    @app.get("/health")
    async def health() -> Health:
        """The server's status, and how many photos it has captioned."""
        return Health(
            status="ok",
            model=name,
            waiting=gate.inside,
            photos=batcher.photos,
            batches=batcher.batches,
        )

    @app.post(
        "/caption",
        response_model=Answer,
        response_model_exclude_none=True,
        responses={
            status: {"model": Refusal, "description": meaning}
            for status, meaning in REFUSALS.items()
        },
    )
    async def caption(request: Request, form: Annotated[CaptionForm, File()]) -> JSONResponse:
        """Captions of a photo, each word with its probability."""
        chosen, chosen_maps = form.search(search), form.maps(maps)
        photo = Upload(_name(form.photo.filename), await form.photo.read(), limits.pixels)
        runners_up = RUNNERS_UP if form.view else 0
        captions = await _unless_gone(
            request, batcher.captions(photo, chosen, form.captions, runners_up, chosen_maps)
        )
        answer: dict[str, Any] = {"captions": [caption.as_json() for caption in captions]}
        if form.view:
            compares = len(chosen_maps) > 1
            answer["view"] = await batcher.in_reader(_view, photo, captions, compares)
        return JSONResponse(answer)

    return SafeHeaders(HostCheck(gate, hosts))


async def _unless_gone(request: Request, answer: Coroutine[Any, Any, Result]) -> Result:
    """The answer; cancelled when the client disconnects.

    Raises:
        ClientDisconnect: the client has closed the connection.
    """
    work, watch = asyncio.create_task(answer), asyncio.create_task(_departure(request))
    try:
        await asyncio.wait((work, watch), return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            raise ClientDisconnect
        return work.result()
    finally:
        work.cancel()
        watch.cancel()


async def _departure(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _view(photo: Upload, captions: list[Caption], compares: bool) -> dict[str, Any]:
    return viewer.data(read_image(photo), captions, compares=compares)


def _name(filename: str | None) -> str:
    """The photo's name in errors: the end of its file name, on one line."""
    name = "".join(letter if letter.isprintable() else " " for letter in filename or "")
    return name[-LONGEST_NAME:] or "photo"
