"""The server's addresses, and what each of them answers."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse

from captioning.captioner import Captioner
from captioning.maps import available_maps
from captioning.serving.answer import (
    EXAMPLES,
    PARTS,
    Answer,
    Answers,
    Health,
    Refusal,
    ReviewAnswer,
    ReviewAnswers,
)
from captioning.serving.decoding import Decoders
from captioning.serving.form import CaptionForm, ReviewForm
from captioning.serving.protection import ERRORS, MEANINGS, Limits, answer_to_error
from captioning.serving.protocols import protocols
from captioning.serving.service import CaptionService
from captioning.viewing.html_document import html_document
from captioning.web.page import STYLES, page

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
    decoders = decoders or Decoders(limits)
    service = CaptionService(captioner, batch_size, limits, maps, decoders)
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
            page(
                name,
                captioner.search,
                limits.bytes,
                maps,
                examples=buttons,
                tabs=tabs,
                reviews=captioner.review_calibration is not None,
            )
        )

    @app.api_route("/docs", methods=["GET", "HEAD"], include_in_schema=False)
    async def docs_of_the_api(request: Request) -> HTMLResponse:
        return HTMLResponse(docs_page(str(request.base_url).rstrip("/"), app.openapi()))

    @app.get("/health", response_model=Health)
    async def health() -> dict[str, str | int]:
        """The model, how many photos wait or are being captioned, and how many have been."""
        counts = {"photos": service.batcher.photos, "batches": service.batcher.batches}
        return {"status": "ok", "model": name, "waiting": service.batcher.waiting, **counts}

    refused: dict[int | str, dict[str, Any]] = {
        status: {"model": Refusal, "description": meaning} for status, meaning in MEANINGS.items()
    }
    responses = {200: _answered(), **refused}
    app.post("/caption", response_model=Answer | Answers, responses=responses)(service.caption)
    reviews: Any = ReviewAnswer | ReviewAnswers
    app.post("/review", response_model=reviews, responses=refused)(service.review)
    app.include_router(protocols(service, name))
    return app


def _answered() -> dict[str, Any]:
    """Describes the answer to a request for captions, for the API's documentation."""
    examples = {name: {"value": example} for name, example in EXAMPLES.items()}
    return {
        "description": "Captions of the photo or, in their order, of several photos.",
        "content": {"application/json": {"examples": examples}},
    }


def docs_page(address: str, openapi: Mapping[str, Any]) -> str:
    """The page that describes the API, with an example for the server's address."""
    return html_document(
        "serving/docs.html",
        "captioning: API",
        STYLES,
        address=address,
        schemas=openapi["components"]["schemas"],
        forms={"/caption": CaptionForm.__name__, "/review": ReviewForm.__name__},
        parts=[part.__name__ for part in PARTS],
        examples={name: json.dumps(example, indent=1) for name, example in EXAMPLES.items()},
        refusals=MEANINGS,
    )
