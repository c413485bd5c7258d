"""Errors as JSON answers, each with one sentence for people."""

from collections.abc import Mapping

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from captioning.data.images import PhotoSizeError
from captioning.errors import InputError
from captioning.maps import MapError
from captioning.serving.form import SettingError

UNKNOWN_ADDRESS = "unknown address; /docs lists the addresses"
WRONG_METHOD = "this address takes another method; see /docs"


class Refusal(BaseModel):
    """Why a request was not answered."""

    error: str = Field(description="One sentence that says what is wrong and what to do.")


def refusal(status: int, sentence: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """The error response to a request.

    Args:
        status: the HTTP status.
        sentence: what is wrong. It may quote the request, even characters that UTF-8 cannot
            encode.
        headers: further headers.
    """
    sentence = sentence.encode("utf-8", "backslashreplace").decode()
    return JSONResponse({"error": sentence}, status, headers)


def add_errors(app: FastAPI) -> None:
    """Let the app answer every exception of its parts in this way."""

    @app.exception_handler(HTTPException)
    async def of_http(request: Request, error: HTTPException) -> JSONResponse:
        known = {404: UNKNOWN_ADDRESS, 405: WRONG_METHOD}
        if error.status_code == 400:  # the form parser's own message is terse
            known[400] = f"the form cannot be read ({error.detail}); see /docs for its fields"
        sentence = known.get(error.status_code, error.detail)
        return refusal(error.status_code, sentence, error.headers)

    @app.exception_handler(RequestValidationError)
    async def of_form(request: Request, error: RequestValidationError) -> JSONResponse:
        return refusal(422, "; ".join(_complaint(found) for found in error.errors()))

    @app.exception_handler(SettingError)
    async def of_settings(request: Request, error: SettingError) -> JSONResponse:
        return refusal(422, str(error))

    @app.exception_handler(MapError)
    async def of_map(request: Request, error: MapError) -> JSONResponse:
        return refusal(422, str(error))

    @app.exception_handler(PhotoSizeError)
    async def of_size(request: Request, error: PhotoSizeError) -> JSONResponse:
        return refusal(413, str(error))

    @app.exception_handler(InputError)
    async def of_photo(request: Request, error: InputError) -> JSONResponse:
        return refusal(415, str(error))

    @app.exception_handler(ClientDisconnect)
    async def of_nobody(request: Request, error: ClientDisconnect) -> JSONResponse:
        return refusal(400, "the connection was closed before the captions were ready")

    @app.exception_handler(Exception)
    async def of_program(request: Request, error: Exception) -> JSONResponse:
        return refusal(500, "the server made a mistake; its log says more")


def _complaint(found: Mapping[str, object]) -> str:
    """Pydantic's error about a field of the form, as a sentence."""
    place = found["loc"]
    assert isinstance(place, tuple)
    name = str(place[-1])
    if found["type"] == "missing":
        return f"{name} is missing; send it as a field of the form"
    if found["type"] == "extra_forbidden":
        return f"unknown setting {name!r}; see /docs for the settings"
    if name == "photo":
        return "photo is text; send it as a file"
    message = str(found["msg"])
    return f"{name}: {message[0].lower()}{message[1:]}"
