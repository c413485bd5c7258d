"""The gate before the model: so many requests at once, each so large and for so long."""

from anyio import fail_after
from fastapi import HTTPException
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from captioning.serving.errors import refusal
from captioning.serving.limits import Limits

DRAINED = 8
"""How many times the limit of a body is read and forgotten, once the request has been refused.

A client that is still sending when the connection is closed never sees the answer.
"""


class Gate:
    """Middleware that keeps the limits of requests with photos; others it lets through.

    Args:
        app: what answers.
        path: where photos are sent to.
        limits: that it keeps.

    Attributes:
        inside: requests that are being answered.
    """

    def __init__(self, app: ASGIApp, path: str, limits: Limits) -> None:
        self.app = app
        self.path = path
        self.limits = limits
        self.inside = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or refuse to."""
        if scope["type"] != "http" or scope["path"] != self.path or scope["method"] != "POST":
            await self.app(scope, receive, send)
            return
        body, answer = _Body(receive, self.limits.bytes), _Answer(send)
        try:
            with fail_after(self.limits.seconds):
                await self._answer(scope, body, answer)
        except TimeoutError:
            if not answer.begun:
                sentence = (
                    f"this took longer than the {self.limits.seconds:g} seconds that a request "
                    "may take; try again later, or with a smaller photo"
                )
                await refusal(504, sentence)(scope, receive, send)

    async def _answer(self, scope: Scope, body: "_Body", answer: "_Answer") -> None:
        if not Headers(scope=scope).get("content-type", "").startswith("multipart/form-data"):
            await body.drain()
            sentence = "send the photo as a field of a form, multipart/form-data; see /docs"
            await refusal(415, sentence)(scope, body.receive, answer.send)
        elif self.inside >= self.limits.requests:
            await body.drain()
            sentence = f"{self.inside} requests are waiting already; try again in a moment"
            await refusal(503, sentence, {"retry-after": "1"})(scope, body.receive, answer.send)
        else:
            self.inside += 1
            try:
                await self.app(scope, body.receive, answer.send)
            finally:
                self.inside -= 1


class _Body:
    """The body of a request, counted as it comes, whatever its headers say of its length."""

    def __init__(self, receive: Receive, limit: int) -> None:
        self._receive = receive
        self._limit = limit
        self._size = 0
        self._is_read = False

    async def receive(self) -> Message:
        message = await self._receive()
        self._count(message)
        if self._size > self._limit:
            await self.drain()
            raise HTTPException(
                413, f"more than the {self._limit / 1e6:g} MB that are read here; send less"
            )
        return message

    async def drain(self) -> None:
        while not self._is_read and self._size < DRAINED * self._limit:
            self._count(await self._receive())

    def _count(self, message: Message) -> None:
        self._size += len(message.get("body", b""))
        self._is_read = not message.get("more_body", False)  # or the client has gone


class _Answer:
    """The answer to a request, which can be another one only before it has begun."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.begun = False

    async def send(self, message: Message) -> None:
        self.begun = True
        await self._send(message)
