"""Connections to clients, with a timeout for every stage."""

import asyncio
import json
import sys
from enum import Enum, auto
from http import HTTPStatus
from typing import Any

import h11
from uvicorn import Config
from uvicorn.protocols.http.flow_control import CLOSE_HEADER
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from captioning.serving.limits import Limits

IGNORED = 8
"""How much of a body is read and ignored after its request was answered, in body limits.

A client that is still sending when its connection is cut never sees the answer.
"""

READ = 16_384
"""Bytes read at a time; more would block the event loop if they came in chunks of one byte."""

LONGEST_REASON = 100
"""Characters of a parser's message, which may quote the client."""


class Stage(Enum):
    """What a connection is waiting for."""

    HEADER = auto()
    ANSWER = auto()  # or the body, whose timeout is the gate's
    REST = auto()  # the rest of a body whose request has been answered
    CLOSE = auto()


class Connection(H11Protocol):
    """uvicorn's connection with a timeout for every stage, and errors in JSON.

    uvicorn limits only the time between two requests. Here each stage has one timer, which
    incoming bytes do not restart.

    Args:
        config: uvicorn's.
        server_state: uvicorn's state, shared by its connections.
        app_state: the state of the app's lifespan.
        limits: of time and of requests.
    """

    def __init__(
        self, config: Config, server_state: ServerState, app_state: dict[str, Any], limits: Limits
    ) -> None:
        super().__init__(config, server_state, app_state)
        self.limits = limits
        self._stage = Stage.HEADER
        self._since = self.loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._answered = 0.0
        self._requests = 0
        self._last_cycle: object = None
        self._ignored = 0
        self._is_refused = False

    def waiting_since(self) -> tuple[bool, float] | None:
        """Sort key of the connections that may be cut to make room; None while one is answered.

        Connections that have sent no request sort before those that are sending a body, and
        older ones before younger ones.
        """
        if self._stage is not Stage.ANSWER:
            return False, self._since
        return (True, self._since) if self.cycle.more_body else None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start waiting for the first request."""
        super().connection_made(transport)
        transport.max_size = READ  # type: ignore[attr-defined]  # asyncio has no other way
        self._start(Stage.HEADER)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        """Read more of a request, or ignore what follows its answer."""
        if self._is_refused or self._stage is Stage.REST:
            self._ignored += len(data)
            if self._ignored > IGNORED * self.limits.bytes:
                self.transport.abort()
        if not self._is_refused:
            super().data_received(data)
            self._follow()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self._answered = self.loop.time()
        super().on_response_complete()
        self._follow()

    def timeout_keep_alive_handler(self) -> None:
        """End a connection between two requests."""
        super().timeout_keep_alive_handler()
        self._follow()

    def shutdown(self) -> None:
        """End the connection after the current answer."""
        is_incomplete = self._stage is Stage.ANSWER and self.cycle.more_body
        if self._is_refused or is_incomplete or self.transport.is_closing():
            self.transport.abort()
        else:
            super().shutdown()

    def send_400_response(self, msg: str) -> None:
        """Answer with the parser's error, which uvicorn has just caught."""
        error = sys.exc_info()[1]
        status = error.error_status_hint if isinstance(error, h11.RemoteProtocolError) else 400
        reason = str(error)[:LONGEST_REASON]
        self.refuse(status, f"this request cannot be read ({reason}); see /docs")

    def refuse(self, status: int, sentence: str) -> None:
        """Answer an incomplete request, and end the connection.

        The rest of the request is read and ignored for a moment, since a client that is cut off
        while it sends may never see the answer.
        """
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()
            if cycle.response_started:  # a second answer cannot be sent
                self.transport.abort()
                return
        body = json.dumps({"error": sentence}).encode()
        head = (
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n"
            "Content-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n"
            "X-Content-Type-Options: nosniff\r\n"
            "Connection: close\r\n\r\n"
        )
        self._is_refused = True
        self.transport.write(head.encode() + body)
        self.transport.write_eof()
        self.flow.resume_reading()
        self._start(Stage.CLOSE)

    def _follow(self) -> None:
        """Start the timer of a stage that the connection has just entered."""
        cycle = self.cycle
        if self._is_refused:
            return
        if cycle is not self._last_cycle:
            self._last_cycle = cycle
            self._requests += 1
            if self._requests == self.limits.keep_alive:
                self.headers.append(CLOSE_HEADER)  # as if the client had asked for it
        elif self._stage is self._current():
            return
        self._start(self._current())

    def _current(self) -> Stage:
        if self.transport.is_closing():
            return Stage.CLOSE
        if self.cycle is None:
            return Stage.HEADER
        if not self.cycle.response_complete:
            return Stage.ANSWER
        return Stage.REST if self.conn.their_state is h11.SEND_BODY else Stage.HEADER

    def _is_taking_its_answer(self) -> bool:
        """Whether a large answer is still being sent, within as much time as a request has."""
        return (
            self._stage is not Stage.ANSWER
            and self.transport.get_write_buffer_size() > 0
            and self.loop.time() < self._answered + self.limits.seconds
        )

    def _start(self, stage: Stage) -> None:
        if self._timer is not None:
            self._timer.cancel()
        seconds = {
            Stage.HEADER: self.limits.header_seconds,
            Stage.ANSWER: self.limits.seconds + self.limits.closing_seconds,
            Stage.REST: self.limits.closing_seconds,
            Stage.CLOSE: self.limits.closing_seconds,
        }[stage]
        self._stage = stage
        self._since = self.loop.time()
        self._ignored = 0
        self._timer = self.loop.call_later(seconds, self._expire)

    def _expire(self) -> None:
        """End a connection whose client took too long."""
        if self._is_taking_its_answer():
            self._start(self._stage)
        elif self._stage is not Stage.HEADER:
            self.transport.abort()
        elif self.conn.trailing_data[0]:
            sentence = (
                f"the header of this request did not arrive within {self.limits.header_seconds:g} "
                "seconds; send it at once"
            )
            self.refuse(408, sentence)
        else:
            self.transport.close()
            self._start(Stage.CLOSE)
