import io
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import httpx
import pytest
import torch
from PIL import Image
from starlette.types import ASGIApp

from captioning.captioner import Captioner
from captioning.search import BeamSearch
from captioning.serving import Hosts, Limits, Server, application

LOOPBACK = Hosts()

Serve = Callable[..., httpx.Client]
"""Starts a server with some limits and gives a client of it."""


@contextmanager
def served(app: ASGIApp, limits: Limits) -> Iterator[str]:
    """The address of the app on this machine, answered by a thread."""
    listening = socket.create_server(("127.0.0.1", 0), backlog=512)
    address = "http://{}:{}".format(*listening.getsockname())
    server = Server(app, listening, limits)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield address
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture
def serve(captioner: Captioner) -> Iterator[Serve]:
    """A function that serves the tiny captioner until the test ends."""
    captioner.search = BeamSearch(max_length=5)
    with ExitStack() as stack:

        def start(
            batch_size: int = 16, hosts: Hosts = LOOPBACK, **given: int | float
        ) -> httpx.Client:
            limits = Limits(**given)
            app = application(captioner, captioner.search, "tiny.ckpt", batch_size, limits, hosts)
            address = stack.enter_context(served(app, limits))
            # Certificates, which nobody asks for here, take longer to read than a test.
            client = httpx.Client(base_url=address, timeout=30, verify=False)
            return stack.enter_context(client)

        yield start


@pytest.fixture
def client(serve: Serve) -> httpx.Client:
    """A client of a server with the usual limits."""
    return serve()


@pytest.fixture
def held(captioner: Captioner) -> Iterator[threading.Event]:
    """Holds the model before each batch until the event is set."""
    event = threading.Event()
    hook = captioner.encoder.register_forward_pre_hook(lambda *_: bool(event.wait()) and None)
    yield event
    event.set()
    hook.remove()


@pytest.fixture
def photos() -> list[bytes]:
    """A dozen PNGs of noise, none like another."""
    noise = torch.Generator().manual_seed(0)
    found = []
    for _ in range(12):
        pixels = torch.randint(256, (40, 48, 3), generator=noise, dtype=torch.uint8)
        file = io.BytesIO()
        Image.fromarray(pixels.numpy()).save(file, "PNG")
        found.append(file.getvalue())
    return found


@pytest.fixture
def photo(photos: list[bytes]) -> bytes:
    """A PNG."""
    return photos[0]


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait for what happens in another thread; it fails where that never happens."""
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def form(photo: bytes) -> tuple[dict[str, str], bytes]:
    """Headers and body of a request for captions."""
    body = (
        b'--b\r\nContent-Disposition: form-data; name="photo"; filename="photo"\r\n\r\n'
        + photo
        + b"\r\n--b--\r\n"
    )
    return {"Content-Type": "multipart/form-data; boundary=b"}, body


def waiting(client: httpx.Client) -> int:
    """How many requests with photos the server is answering."""
    return int(client.get("/health").json()["waiting"])
