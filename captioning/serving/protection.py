"""What the server refuses: its limits, other sites' pages, and errors as a sentence in JSON.

A page of another site may send requests to any address that the browser reaches, including this
machine. By DNS rebinding, where the page's own name is made to resolve to this machine, it could
even read the answers; the Host header still holds the page's name then.
"""

import asyncio
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address

from fastapi import HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from captioning.data.images import PhotoSizeError
from captioning.errors import InputError
from captioning.maps import MapError
from captioning.web.page import SERVER

MEANINGS = {
    400: "The form or the request cannot be read.",
    403: "A page of another site sent the request.",
    408: "The photo did not arrive in time.",
    413: "The photo or the whole request is too large, or the photo takes too long to decode.",
    415: "The file is not an image that can be read.",
    421: "The Host header is not a name of this server.",
    422: "A setting is missing, unknown or does not fit the others.",
    500: "The server failed; its log says more.",
    503: "Too many photos are waiting.",
    504: "The captions took too long.",
}
"""What each status means, for the API's documentation."""

HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Content-Security-Policy": f"{SERVER.policy}; frame-ancestors 'none'",
}
"""Security headers for browsers, in every answer."""

AUTHORITY = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+?)\.?)(:[0-9]{1,5})?", re.ASCII)
"""An IPv6 address or a name, with an optional port."""

MAX_PHOTOS = 16
"""Of a request, unless the server says otherwise; as many as a batch has."""

SAFE_METHODS = ("GET", "HEAD", "OPTIONS", "TRACE")  # which never run the model


@dataclass(frozen=True)
class Limits:
    """The limits beyond which the server refuses a request."""

    bytes: int = 20_000_000  # of a request's body
    pixels: int = 25_000_000  # of a photo
    decoding_seconds: float = 10.0  # for a photo
    seconds: float = 30.0  # from the end of a request's header to its answer
    queue: int = 128  # photos that wait or are captioned at a time
    photos: int = MAX_PHOTOS  # of a request
    uploads: int = 256_000_000  # bytes of all bodies that are held at a time
    header_seconds: float = 5.0  # for a header, from the start of a connection or the last answer


@dataclass(frozen=True)
class AllowedHosts:
    """The hosts that requests may be for, besides loopback, in lower case and with any port.

    Attributes:
        address: of the server, in numbers. For all addresses of this machine, its name and all
            numeric addresses are allowed, which DNS rebinding cannot use.
        host: the server's name, as the user gave it.
        trusted: further names, whose pages may send photos even if a proxy changes Host.

    Raises:
        InputError: a further name is malformed.
    """

    address: str = "127.0.0.1"
    host: str = "localhost"
    trusted: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in self.trusted:
            if _name(f"{name}:1") != name:
                raise InputError(
                    f"--allow-host {name!r} is not a host name; give it without a port"
                )

    def __contains__(self, name: str) -> bool:
        if name in ("localhost", self.address, self.host.lower(), *self.trusted):
            return True
        is_everywhere = ip_address(self.address.partition("%")[0]).is_unspecified
        machine = socket.gethostname().lower()
        try:
            return ip_address(name).is_loopback or is_everywhere
        except ValueError:
            return is_everywhere and name in (machine, f"{machine}.local")


def _name(authority: str) -> str | None:
    """The host of "host:port" without brackets; None if malformed."""
    match = AUTHORITY.fullmatch(authority.lower())
    return match and (match[1] or match[2])


class Protection:
    """An app for strangers: refuses pages of other sites, and bounds the bodies and the time.

    The time of a header has its limit in the web server.
    """

    def __init__(self, app: ASGIApp, limits: Limits, hosts: AllowedHosts = AllowedHosts()) -> None:
        self.app = app
        self.limits = limits
        self.hosts = hosts
        self._held_bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        content_length = Headers(scope=scope).get("content-length", "")
        size, limit, is_complete = 0, self.limits.bytes, False
        path = scope["path"]

        async def receive_counted() -> Message:
            nonlocal size, is_complete
            too_large = HTTPException(413, f"more than {limit / 1e6:g} MB; send a smaller photo")
            if content_length.isdecimal() and int(content_length) > limit:
                raise too_large
            message = await receive()
            piece = len(message.get("body", b""))
            size += piece
            self._held_bytes += piece
            is_complete = not message.get("more_body", False)
            if size > limit:
                raise too_large
            if self._held_bytes > self.limits.uploads:
                raise HTTPException(503, "too many large photos at a time; try again in a moment")
            return message

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        answer = self._refused(Headers(scope=scope), scope["method"], path) or self.app
        try:
            async with asyncio.timeout(self.limits.seconds):
                await answer(scope, receive_counted, send_with_headers)
        except TimeoutError:
            late = f"within the {self.limits.seconds:g} seconds that a request may take"
            if is_complete:
                answer = refusal(path, 504, f"no captions {late}; try again later or ask for fewer")
            else:
                answer = refusal(path, 408, f"the photo did not arrive {late}; send a smaller one")
            await answer(scope, receive, send_with_headers)
        finally:
            self._held_bytes -= size

    def _refused(self, headers: Headers, method: str, path: str) -> ASGIApp | None:
        """The answer to a request for another host, or from a page of another site."""
        hosts = headers.getlist("host")
        name = _name(hosts[0]) if len(hosts) == 1 else None
        if name is None:
            sentence = "the Host header is missing or malformed; send this server's name"
            return refusal(path, 400, sentence)
        if name not in self.hosts:
            sentence = f"this server is not {name}; if it should be, start it with --allow-host"
            return refusal(path, 421, sentence)
        # Browsers say whose page sends, in this header or, where it is not encrypted, in Origin.
        is_same_site = headers.get("sec-fetch-site") in ("same-origin", "none")
        if "sec-fetch-site" not in headers:
            authority = headers.get("origin", f"//{hosts[0]}").lower().partition("//")[2]
            is_same_site = authority == hosts[0].lower() or _name(authority) in self.hosts.trusted
        if is_same_site or method in SAFE_METHODS:
            return None
        sentence = "pages of other sites may not send photos; open this server's own page"
        return refusal(path, 403, sentence)


def refusal(
    path: str, status: int, sentence: str, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """The response to a refused request: one sentence that says what is wrong."""
    sentence = sentence.encode("utf-8", "backslashreplace").decode()  # it may quote the request
    error: str | dict[str, str] = sentence
    if "/v1/" in path:  # as clients of OpenAI's protocol read it
        error = {"message": sentence, "type": "invalid_request_error"}
    return JSONResponse({"error": error}, status, headers)


async def answer_to_error(request: Request, error: Exception) -> Response:
    """The response to a request that has raised an error of `ERRORS`."""
    path = request.url.path
    match error:
        case StarletteHTTPException():
            return refusal(path, error.status_code, error.detail, error.headers)
        case RequestValidationError():
            lines = []
            for details in error.errors():  # a photo's number follows its field
                [*_, field] = (part for part in details["loc"] if isinstance(part, str))
                lines.append(f"{field}: {details['msg']}")
            return refusal(path, 422, f"{'; '.join(lines)}; see /docs for the fields")
        case InputError():
            statuses = {MapError: 422, PhotoSizeError: 413}
            return refusal(path, statuses.get(type(error), 415), str(error))
        case ClientDisconnect():
            return Response(status_code=499)  # as nginx logs it; no client receives it
        case _:
            return refusal(path, 500, "the server failed; its log says more")


ERRORS = StarletteHTTPException, RequestValidationError, InputError, ClientDisconnect, Exception
