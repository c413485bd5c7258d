"""Serves the app until it is interrupted, and logs each fault as one line.

Granian closes connections whose header does not arrive in time, and finishes requests when it
stops.
"""

import asyncio
import logging
import os
import re
import signal
import socket
import sys
import threading
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings
from granian.log import LogLevels
from granian.net import SocketHolder
from granian.server.embed import Server as EmbeddedServer
from starlette.types import ASGIApp

from captioning.errors import UsageError, ending_signals
from captioning.serving.refusals import Limits

BACKLOG = 2048  # the most connections that are open, and as many that wait for one to close
LONGEST_HEADER = 2**16  # bytes of a request's address and headers
LONGEST_LINE = 300  # characters of a line of the log

TRACEBACK = "Traceback (most recent call last):"
PLACE = re.compile(r'File ".*?([^/\\"]+)", line ([0-9]+)')
"""A file and a line in a traceback, which Granian logs as text."""


def listening_socket(host: str, port: int) -> socket.socket:
    """A listening socket, opened first so that a wrong address fails before the model is loaded.

    Raises:
        UsageError: no socket can listen at this address.
    """
    if not host.strip():  # which would be every address of this machine
        raise UsageError("--host is empty; give an address, or 0.0.0.0 for all of this machine")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        address = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM)[0][4]
        return socket.create_server(address[:2], family=family, backlog=BACKLOG)
    except (OSError, ValueError) as error:  # ValueError: no name can be like this
        reason = error.strerror if isinstance(error, OSError) else "not a host name"
        raise UsageError(
            f"cannot listen on {host}, port {port} ({reason}); give another --host or --port"
        ) from None


class Server(EmbeddedServer):
    """Granian within this process, on a socket that listens already."""

    def __init__(self, app: ASGIApp, listening: socket.socket, limits: Limits) -> None:
        super().__init__(
            app,
            interface=Interfaces.ASGI,
            http=HTTPModes.http1,
            websockets=False,
            backlog=BACKLOG,
            backpressure=_most_connections(),
            http1_settings=HTTP1Settings(
                header_read_timeout=int(1000 * limits.header_seconds),
                max_buffer_size=LONGEST_HEADER,
            ),
            log_level=LogLevels.error,
            log_dictconfig={"loggers": {"_granian": {}}},  # to the root logger
        )
        self._listening = listening
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux: a client that does not read its answer
            milliseconds = int(1000 * limits.seconds)
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)

    def _init_shared_socket(self) -> None:
        """Listen; Granian would open a socket of its own here."""
        number = os.dup(self._listening.fileno())  # Granian closes what it is given
        holder = SocketHolder(number, False, BACKLOG)  # type: ignore[call-arg]  # as it unpickles
        self._shd = holder  # type: ignore[assignment]


def _most_connections() -> int:
    """The most open connections: `BACKLOG`, or half the files that this process may open.

    The other half is for what requests open, such as modules that are imported when first used. A
    limit on files that may be raised is raised.
    """
    if sys.platform == "win32":
        return BACKLOG
    import resource

    files, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return BACKLOG
    wanted = max(files, 2 * BACKLOG)
    files = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, most))
    return min(BACKLOG, max(1, files // 2))


def serve(
    app: ASGIApp, listening: socket.socket, limits: Limits, opens_browser: bool = False
) -> None:
    """Print the address, then answer requests until a signal comes, such as that of Ctrl-C.

    `opens_browser` opens the page in a browser if there is a desktop to show it on.
    """
    host, port = listening.getsockname()[:2]
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    print(url, flush=True)
    if sys.platform.startswith("linux"):  # where another browser might take over the terminal
        has_desktop = bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    else:
        has_desktop = sys.stdout.isatty()
    if opens_browser and has_desktop:
        # The socket listens already: the browser waits for its answer.
        threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()
    with suppress(KeyboardInterrupt):
        asyncio.run(_until_interrupted(Server(app, listening, limits)))


async def _until_interrupted(server: Server) -> None:
    """Serve until a signal comes, then finish open requests; a second signal ends them too."""
    loop = asyncio.get_running_loop()

    def stop() -> None:
        for number in ending_signals():
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)
        server.stop()

    with suppress(NotImplementedError):  # Windows, where Ctrl-C raises KeyboardInterrupt
        for number in ending_signals():
            loop.add_signal_handler(number, stop)
    with faults_on_stderr():
        await server.serve()


class _OneLine(logging.Formatter):
    """What happened, why, and where in the program."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        head, trace = text.partition(TRACEBACK)[0], text.rpartition(TRACEBACK)[2]
        if places := PLACE.findall(trace):
            reason = " ".join(line for line in trace.splitlines() if not line.startswith(" "))
            head = f"{head.strip()}: {reason.strip()} ({places[-1][0]}, line {places[-1][1]})"
        line = f"captioning: {' '.join(head.split())}"
        return line[:LONGEST_LINE].encode("ascii", "backslashreplace").decode()


@contextmanager
def faults_on_stderr() -> Iterator[None]:
    """Log faults to stderr while the block lasts."""
    handler = logging.StreamHandler()
    handler.setFormatter(_OneLine())
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
