"""What the server refuses: its limits, and every error as one sentence in JSON."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from captioning.data.images import PhotoSizeError
from captioning.errors import InputError
from captioning.maps import MapError
from captioning.serving.form import SettingError

MEANINGS = {
    400: "The form or the request cannot be read.",
    403: "A page of another site sent the request.",
    408: "The photo did not arrive in time.",
    413: "The photo or the whole request is too large.",
    415: "The file is not an image that can be read.",
    421: "The Host header is not a name of this server.",
    422: "A setting is missing, unknown or does not fit the others.",
    503: "Too many requests are waiting.",
    504: "The captions took too long.",
}
"""What each status means, for the API's documentation."""


@dataclass(frozen=True)
class Limits:
    """The limits beyond which the server refuses a request.

    Attributes:
        bytes: of a request's body.
        pixels: of a photo, and of all photos that are decoded at a time.
        seconds: from the end of a request's header to its answer.
        requests: with a whole photo, that wait or are answered at a time.
        uploads: bytes of all bodies that are held at a time.
        header_seconds: for the next header, from the start of a connection or the last answer.
    """

    bytes: int = 20_000_000
    pixels: int = 25_000_000
    seconds: float = 30.0
    requests: int = 64
    uploads: int = 256_000_000
    header_seconds: float = 5.0


class Refusal(BaseModel):
    """Why a request was not answered."""

    error: str = Field(description="One sentence: what is wrong and what to do.")


def refusal(status: int, sentence: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """The response to a refused request: one sentence that says what is wrong."""
    sentence = sentence.encode("utf-8", "backslashreplace").decode()  # it may quote the request
    return JSONResponse({"error": sentence}, status, headers)


class RequestLimits:
    """Middleware that bounds the size of each body and of all together, and a request's time.

    The time counts from the end of the header, which has a limit of its own in the web server.
    """

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self.app = app
        self.limits = limits
        self._held = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer or refuse."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        announced = Headers(scope=scope).get("content-length", "")
        size, most, is_whole = 0, self.limits.bytes, False

        async def counted() -> Message:
            nonlocal size, is_whole
            too_large = HTTPException(413, f"more than {most / 1e6:g} MB; send a smaller photo")
            if announced.isdecimal() and int(announced) > most:
                raise too_large
            message = await receive()
            piece = len(message.get("body", b""))
            size += piece
            self._held += piece
            is_whole = not message.get("more_body", False)
            if size > most:
                raise too_large
            if self._held > self.limits.uploads:
                raise HTTPException(503, "too many large photos at a time; try again in a moment")
            return message

        try:
            async with asyncio.timeout(self.limits.seconds):
                await self.app(scope, counted, send)
        except TimeoutError:
            late = f"within the {self.limits.seconds:g} seconds that a request may take"
            if is_whole:
                answer = refusal(504, f"no captions {late}; try again later or ask for fewer")
            else:
                answer = refusal(408, f"the photo did not arrive {late}; send a smaller one")
            await answer(scope, receive, send)
        finally:
            self._held -= size


def add_errors(app: FastAPI) -> None:
    """Answer every exception with a status and one sentence."""

    @app.exception_handler(StarletteHTTPException)
    async def of_http(request: Request, error: StarletteHTTPException) -> JSONResponse:
        sentences = {
            400: f"the form cannot be read ({error.detail}); see /docs for its fields",
            404: "unknown address; /docs lists the addresses",
            405: "this address takes another method; see /docs",
        }
        sentence = sentences.get(error.status_code, error.detail)
        return refusal(error.status_code, sentence, error.headers)

    @app.exception_handler(RequestValidationError)
    async def of_form(request: Request, error: RequestValidationError) -> JSONResponse:
        return refusal(422, "; ".join(_complaint(found) for found in error.errors()))

    @app.exception_handler(InputError)
    async def of_input(request: Request, error: InputError) -> JSONResponse:
        statuses = {SettingError: 422, MapError: 422, PhotoSizeError: 413}
        return refusal(statuses.get(type(error), 415), str(error))

    @app.exception_handler(ClientDisconnect)
    async def of_nobody(request: Request, error: ClientDisconnect) -> Response:
        return Response(status_code=499)  # as nginx logs it; no client receives it

    @app.exception_handler(Exception)
    async def of_program(request: Request, error: Exception) -> JSONResponse:
        return refusal(500, "the server failed; its log says more")


def _complaint(found: Mapping[str, Any]) -> str:
    """One of pydantic's errors about the form, as a sentence."""
    name = str(found["loc"][-1])
    if found["type"] == "missing":
        return f"{name} is missing; send it as a field of a form (multipart/form-data)"
    if found["type"] == "extra_forbidden":
        return f"unknown setting {name!r}; see /docs for the settings"
    if name == "photo":
        return "photo is text; send it as a file"
    message = found["msg"]
    return f"{name}: {message[0].lower()}{message[1:]}"
