"""The server from its start until it is interrupted."""

import os
import socket
import sys
import threading
import webbrowser

from starlette.types import ASGIApp

from captioning.captioner import Captioner
from captioning.serving.address import url_of
from captioning.serving.limits import Limits
from captioning.serving.log import faults_on_stderr
from captioning.serving.server import Server


def serve(
    app: ASGIApp,
    captioner: Captioner,
    listening: socket.socket,
    limits: Limits,
    opens_browser: bool = False,
) -> None:
    """Print the address, then answer requests until interrupted.

    Args:
        app: what answers.
        captioner: the model that the app asks; its weights are packed meanwhile.
        listening: the server's socket.
        limits: of connections.
        opens_browser: open the page in a browser, where there is a desktop to show one.
    """
    url = url_of(listening)
    print(url, flush=True)
    if opens_browser and _has_desktop():
        # The socket listens already: the browser waits for its answer.
        threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()
    try:
        with captioner.prepared(), faults_on_stderr():
            Server(app, listening, limits).run()
    except KeyboardInterrupt:
        return  # the usual way to stop the server


def _has_desktop() -> bool:
    """Whether a browser would open as a window; without one it might take over the terminal."""
    if sys.platform.startswith("linux"):
        return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    return sys.stdout.isatty()
