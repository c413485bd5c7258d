"""Serves the app until it is interrupted, by Granian, which bounds the time of headers."""

import asyncio
import os
import signal
import socket
import sys
import threading
import webbrowser
from contextlib import suppress

from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings
from granian.log import LogLevels
from granian.server.embed import Server
from starlette.types import ASGIApp

from captioning.errors import InputError
from captioning.serving.protection import Limits

CONNECTIONS = 512  # the most that are open; as many as usual limits on open files allow
LONGEST_HEADER = 2**16  # bytes of a request's address and headers


def free_address(host: str, port: int) -> tuple[str, int]:
    """The numbers of an address, where port 0 stands for any free one.

    Raises:
        InputError: nothing can listen there.
    """
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.create_server(address[:2], family=family) as tried:
            return tried.getsockname()[0], tried.getsockname()[1]
    except (OSError, ValueError) as error:  # ValueError: no name can be like this
        raise InputError(
            f"cannot listen on {host}, port {port} ({error}); give another --host or --port"
        ) from None


def web_server(app: ASGIApp, address: tuple[str, int], limits: Limits) -> Server:
    """Granian within this process."""
    return Server(
        app,
        *address,
        interface=Interfaces.ASGI,
        http=HTTPModes.http1,
        websockets=False,
        backlog=CONNECTIONS,
        backpressure=CONNECTIONS,
        http1_settings=HTTP1Settings(
            header_read_timeout=int(1000 * limits.header_seconds),
            max_buffer_size=LONGEST_HEADER,
        ),
        log_level=LogLevels.error,
        log_dictconfig={"loggers": {"_granian": {}}},  # to the root logger
    )


def serve(
    app: ASGIApp, address: tuple[str, int], limits: Limits, opens_browser: bool = False
) -> None:
    """Print the address, then answer requests until a signal comes, such as that of Ctrl-C.

    Args:
        app: what answers.
        address: of `free_address`.
        limits: of requests.
        opens_browser: open the page in a browser if there is a desktop to show it on.
    """
    host, port = address
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    print(url, flush=True)
    # Without a desktop, a browser of text might take over Linux's terminal.
    has_desktop = sys.platform != "linux" or {"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys()
    if opens_browser and has_desktop:
        threading.Timer(0.5, webbrowser.open, (url,)).start()  # once the server listens
    with suppress(KeyboardInterrupt):
        asyncio.run(_until_interrupted(web_server(app, address, limits)))


async def _until_interrupted(server: Server) -> None:
    """Serve until a signal comes, then finish open requests; a second signal ends them too."""
    loop, signals = asyncio.get_running_loop(), (signal.SIGINT, signal.SIGTERM)

    def stop() -> None:
        for number in signals:
            loop.remove_signal_handler(number)
        server.stop()

    with suppress(NotImplementedError):  # Windows, where Ctrl-C raises KeyboardInterrupt
        for number in signals:
            loop.add_signal_handler(number, stop)
    await server.serve()
