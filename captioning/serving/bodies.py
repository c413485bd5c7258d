"""The bodies of requests, read completely before the requests wait for the model."""

from collections import deque

from anyio import CancelScope
from fastapi import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive


class Body:
    """The body of a request, buffered until it is complete and then passed on to the app.

    Attributes:
        size: bytes received so far.
        is_whole: whether the body is complete.
    """

    def __init__(self, receive: Receive) -> None:
        self.size = 0
        self.is_whole = False
        self._scope = CancelScope()
        self._receive = receive
        self._pieces: deque[bytes] = deque()

    async def receive(self) -> Message:
        """The next piece, as an ASGI message."""
        if not self._pieces:
            return await self._receive()
        piece = self._pieces.popleft()
        return {"type": "http.request", "body": piece, "more_body": bool(self._pieces)}

    async def read(self, bodies: "Bodies") -> None:
        """Wait until the body is complete; raises the errors of `Bodies.read`."""
        with self._scope:
            while not self.is_whole:
                message = await self._receive()
                if self._scope.cancel_called:
                    break
                if message["type"] == "http.disconnect":
                    raise ClientDisconnect
                piece = message.get("body", b"")
                bodies.take(self, len(piece))
                self._pieces.append(piece)
                self.is_whole = not message.get("more_body", False)
        if not self.is_whole:
            raise HTTPException(503, "other requests came faster than this one; try again")

    def drop(self) -> None:
        """Stop reading and discard the pieces received so far."""
        self._pieces.clear()
        self._scope.cancel()


class Bodies:
    """All bodies in memory, within limits that hold whatever lengths the headers announce.

    Args:
        each: the most bytes of one body.
        total: the most bytes of all bodies. When a further body has no room, the oldest
            incomplete one is dropped, so that slow clients never keep others out.
    """

    def __init__(self, each: int, total: int) -> None:
        self._each = each
        self._total = total
        self._held: dict[Body, int] = {}  # bytes of each, in order of arrival

    @property
    def held(self) -> int:
        """Bytes in memory."""
        return sum(self._held.values())

    async def read(self, receive: Receive, announced: str) -> Body:
        """The complete body of a request; `release` it in the end.

        Args:
            receive: the ASGI function that gives its pieces.
            announced: the Content-Length header, or an empty string.

        Raises:
            HTTPException: it is too large, or was dropped to make room.
            ClientDisconnect: the client has closed the connection.
        """
        if announced.isdecimal() and int(announced) > self._each:
            raise self._too_large()
        body = Body(receive)
        self._held[body] = 0
        try:
            await body.read(self)
        except BaseException:
            self.release(body)
            raise
        return body

    def take(self, body: Body, size: int) -> None:
        """Make room for a piece.

        Raises:
            HTTPException: the body is too large, or there is no room for it.
        """
        body.size += size
        if body.size > self._each:
            raise self._too_large()
        while self.held + size > self._total:
            slowest = next((other for other in self._held if not other.is_whole), body)
            if slowest is body:
                raise HTTPException(
                    503, "too many large photos are waiting; try again", {"Retry-After": "1"}
                )
            slowest.drop()
            self.release(slowest)
        self._held[body] += size

    def release(self, body: Body) -> None:
        """Free the memory of a body."""
        self._held.pop(body, None)

    def _too_large(self) -> HTTPException:
        sentence = f"more than the {self._each / 1e6:g} MB that are read here; send less"
        return HTTPException(413, sentence)
