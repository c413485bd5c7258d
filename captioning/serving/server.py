"""uvicorn's server with a limit on open connections."""

import asyncio
import logging
import socket

import uvicorn
from starlette.types import ASGIApp

from captioning.serving.connections import Connection
from captioning.serving.limits import Limits

SPARE_FILES = 64
"""File descriptors reserved for everything but connections."""

PAUSE = 0.05
"""Seconds until a full server checks for room again."""

RETRY = 0.5
"""Seconds until the server accepts connections again after the system has failed to."""

_logger = logging.getLogger(__name__)


class Server(uvicorn.Server):
    """Serves an app on a socket.

    asyncio's accept loop, which uvicorn uses, logs thousands of errors a second while file
    descriptors are short. This one accepts only while there is room. When there is none, it cuts
    the connection whose client has kept the server waiting longest; if all connections are being
    answered, new ones wait in the socket's backlog.

    Args:
        app: the app to serve.
        listening: the socket; closed in the end.
        limits: of connections.
    """

    def __init__(self, app: ASGIApp, listening: socket.socket, limits: Limits) -> None:
        config = uvicorn.Config(
            app,
            http="h11",  # another installed implementation would have no timeouts
            ws="none",
            loop="asyncio",
            log_config=None,
            log_level="error",  # malformed requests are answered, not logged
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=max(1, int(limits.seconds)),
        )
        super().__init__(config)
        self.listening = listening
        self.limits = limits
        self.most = most_connections(limits.connections)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the app, then accept."""
        await super().startup(sockets=[])
        self.listening.setblocking(False)
        self._accepting = asyncio.create_task(self._accept())

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting, then end the open connections."""
        self._accepting.cancel()
        await asyncio.wait([self._accepting])
        self.listening.close()
        await super().shutdown(sockets=[])
        if self.force_exit:  # a second interrupt: uvicorn would leave the app's tasks as they are
            await self.lifespan.shutdown()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            while self._is_full() and self._longest_waiting() is None:
                await asyncio.sleep(PAUSE)
            try:
                accepted, _ = await loop.sock_accept(self.listening)
            except OSError as error:  # such as too many open files in the whole system
                _logger.error("cannot accept a connection: %s", error.strerror)
                await asyncio.sleep(0 if self._give_way() else RETRY)
                continue
            if self._is_full():
                self._give_way()
            try:
                await loop.connect_accepted_socket(self._connection, accepted)
            except OSError:  # the client has gone already
                accepted.close()

    def _connection(self) -> Connection:
        return Connection(self.config, self.server_state, self.lifespan.state, self.limits)

    def _is_full(self) -> bool:
        return len(self.server_state.connections) >= self.most

    def _longest_waiting(self) -> Connection | None:
        waiting = [
            (since, connection)
            for connection in self.server_state.connections
            if isinstance(connection, Connection)
            and (since := connection.waiting_since()) is not None
        ]
        return min(waiting, key=lambda pair: pair[0])[1] if waiting else None

    def _give_way(self) -> bool:
        """Cut the connection that has waited longest; False if none may be cut."""
        connection = self._longest_waiting()
        if connection is not None:
            connection.transport.abort()
        return connection is not None


def most_connections(wanted: int) -> int:
    """How many connections the process's file descriptors allow, up to `wanted`."""
    try:
        import resource
    except ImportError:  # Windows, which has no such limit
        return wanted
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return wanted
    return max(1, min(wanted, files - SPARE_FILES))
