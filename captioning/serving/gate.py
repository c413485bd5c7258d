"""The gate before the model: limits on the number, size and time of requests."""

from anyio import fail_after
from fastapi import HTTPException
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from captioning.serving.bodies import Bodies
from captioning.serving.limits import Limits
from captioning.serving.refusals import refusal


class Gate:
    """Middleware that enforces the limits on requests with photos; others pass unchecked.

    A request takes a place once its body is complete, so that slow uploads keep nobody waiting.

    Args:
        app: the wrapped app.
        path: the route that takes photos.
        limits: the limits to enforce.

    Attributes:
        inside: requests that are being answered.
    """

    def __init__(self, app: ASGIApp, path: str, limits: Limits) -> None:
        self.app = app
        self.path = path
        self.limits = limits
        self.inside = 0
        self._bodies = Bodies(limits.bytes, limits.bodies)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer or refuse."""
        if scope["type"] != "http" or scope["path"] != self.path or scope["method"] != "POST":
            await self.app(scope, receive, send)
            return
        request = _Request(scope, receive, send)
        try:
            with fail_after(self.limits.seconds):
                await self._answer(request)
        except TimeoutError:
            if not request.is_answered:
                await request.refuse(self._too_slow(request))
        except HTTPException as error:
            await request.refuse(refusal(error.status_code, error.detail, error.headers))
        except ClientDisconnect:
            return

    async def _answer(self, request: "_Request") -> None:
        headers = Headers(scope=request.scope)
        if not headers.get("content-type", "").startswith("multipart/form-data"):
            sentence = "send the photo as a field of a form, multipart/form-data; see /docs"
            raise HTTPException(415, sentence)
        body = await self._bodies.read(request.receive, headers.get("content-length", ""))
        request.is_whole = True
        try:
            if self.inside >= self.limits.requests:
                sentence = f"{self.inside} requests are waiting already; try again in a moment"
                raise HTTPException(503, sentence, {"Retry-After": "1"})
            self.inside += 1
            try:
                await self.app(request.scope, body.receive, request.send)
            finally:
                self.inside -= 1
        finally:
            self._bodies.release(body)

    def _too_slow(self, request: "_Request") -> Response:
        seconds = f"the {self.limits.seconds:g} seconds that a request may take"
        if request.is_whole:
            return refusal(
                504, f"this took longer than {seconds}; try again later, or with a smaller photo"
            )
        return refusal(
            408, f"the photo did not arrive within {seconds}; send a smaller one, or faster"
        )


class _Request:
    """A request, and whether its response has started, after which it cannot be refused."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.receive = receive
        self.is_whole = False
        self.is_answered = False
        self._send = send

    async def send(self, message: Message) -> None:
        self.is_answered = True
        await self._send(message)

    async def refuse(self, answer: Response) -> None:
        await answer(self.scope, self.receive, self._send)
