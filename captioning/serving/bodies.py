"""The bodies of requests, read whole before their requests wait for the model."""

from collections import deque

from anyio import CancelScope
from fastapi import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive


class Body:
    """The body of a request, which the app receives again once it is whole.

    Attributes:
        size: bytes that have come.
        is_whole: whether all of it has.
    """

    def __init__(self, receive: Receive) -> None:
        self.size = 0
        self.is_whole = False
        self._scope = CancelScope()
        self._receive = receive
        self._pieces: deque[bytes] = deque()

    async def receive(self) -> Message:
        """The next piece, as ASGI sends one."""
        if not self._pieces:
            return await self._receive()
        piece = self._pieces.popleft()
        return {"type": "http.request", "body": piece, "more_body": bool(self._pieces)}

    async def read(self, bodies: "Bodies") -> None:
        """Wait until it is whole; raises what `Bodies.read` does."""
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
        """Stop reading and forget what has come."""
        self._pieces.clear()
        self._scope.cancel()


class Bodies:
    """All bodies in memory, which keep to limits whatever headers say of their lengths.

    Args:
        each: bytes of one.
        together: bytes of all of them. Where one more has no room, the one that began to come
            first and is not whole yet gives way, so that slow clients never keep others out.
    """

    def __init__(self, each: int, together: int) -> None:
        self._each = each
        self._together = together
        self._held: dict[Body, int] = {}  # bytes of each, in the order in which they came

    @property
    def held(self) -> int:
        """Bytes in memory."""
        return sum(self._held.values())

    async def read(self, receive: Receive, announced: str) -> Body:
        """The whole body of a request; `release` it in the end.

        Args:
            receive: what gives its pieces.
            announced: its length, as the header says it, or nothing.

        Raises:
            HTTPException: it is too large, or gave way to others.
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
            HTTPException: there is none.
        """
        body.size += size
        if body.size > self._each:
            raise self._too_large()
        while self.held + size > self._together:
            slowest = next((other for other in self._held if not other.is_whole), body)
            if slowest is body:
                raise HTTPException(
                    503, "too many large photos are waiting; try again", {"Retry-After": "1"}
                )
            slowest.drop()
            self.release(slowest)
        self._held[body] += size

    def release(self, body: Body) -> None:
        """Forget a body."""
        self._held.pop(body, None)

    def _too_large(self) -> HTTPException:
        sentence = f"more than the {self._each / 1e6:g} MB that are read here; send less"
        return HTTPException(413, sentence)
