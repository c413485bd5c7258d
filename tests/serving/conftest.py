import asyncio
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import httpx
import pytest
import torch
from PIL import Image
from starlette.testclient import TestClient
from starlette.types import ASGIApp

from captioning.captioner import Captioner
from captioning.search import BeamSearch
from captioning.serving import (
    AllowedHosts,
    Limits,
    Protection,
    application,
    free_address,
    web_server,
)
from tests.conftest import image_file

LOOPBACK = AllowedHosts()

Ask = Callable[..., TestClient]
"""Gives a client of the tiny captioner's app with some limits, without a network."""

Serve = Callable[..., httpx.Client]
"""Starts a server of the tiny captioner with some limits and gives a client of it."""


@contextmanager
def process_of(end: int, *arguments: str) -> Iterator[httpx.URL]:
    """The address of a process of the command, which the signal `end` ends without a word."""
    with subprocess.Popen(
        [sys.executable, "-m", "captioning", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            yield httpx.URL(process.stdout.readline().strip())
        finally:
            process.send_signal(end)
            assert process.communicate() == ("", "")
            assert process.returncode == 0


@pytest.fixture
def ask(captioner: Captioner, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ask]:
    monkeypatch.setattr("captioning.serving.decoding.PROCESSES", 1)  # each takes time to start
    captioner.search = BeamSearch(max_length=5)
    with ExitStack() as stack:

        def start(
            batch_size: int = 16,
            hosts: AllowedHosts = LOOPBACK,
            maps: tuple[str, ...] = (),
            captioner: Captioner = captioner,
            **given: int | float,
        ) -> TestClient:
            limits = Limits(**given)
            app = application(captioner, "tiny", batch_size, limits, maps)
            guarded = Protection(app, limits, hosts)
            client = TestClient(guarded, "http://localhost", raise_server_exceptions=False)
            return stack.enter_context(client)

        yield start


@pytest.fixture
def client(ask: Ask) -> TestClient:
    """A client of an app with the usual limits."""
    return ask()


@contextmanager
def served(app: ASGIApp, limits: Limits) -> Iterator[str]:
    """The address of the app on this machine, answered by a thread."""
    address = free_address("127.0.0.1", 0)
    runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
    loop, server = runner.get_loop(), web_server(app, address, limits)

    def run() -> None:
        with runner:
            runner.run(server.serve())

    thread = threading.Thread(target=run)
    thread.start()
    try:
        wait_for(lambda: listens(address))
        yield "http://{}:{}".format(*address)
    finally:
        loop.call_soon_threadsafe(server.stop)
        thread.join()


def listens(address: tuple[str, int]) -> bool:
    """Whether somebody answers there."""
    with socket.socket() as tried:
        return tried.connect_ex(address) == 0


@pytest.fixture
def serve(captioner: Captioner) -> Iterator[Serve]:
    captioner.search = BeamSearch(max_length=5)
    with ExitStack() as stack:

        def start(**given: int | float) -> httpx.Client:
            limits = Limits(**given)
            app = application(captioner, "tiny", 16, limits)
            address = stack.enter_context(served(Protection(app, limits), limits))
            # Certificates, which nobody asks for here, take longer to read than a test.
            client = httpx.Client(base_url=address, timeout=30, verify=False)
            return stack.enter_context(client)

        yield start


@pytest.fixture
def server(serve: Serve) -> httpx.Client:
    """A client of a server with the usual limits."""
    return serve()


@pytest.fixture
def held(captioner: Captioner) -> Iterator[threading.Event]:
    """Holds the model before each batch until the event is set."""
    event = threading.Event()
    hook = captioner.network.accelerated.encoder.register_forward_pre_hook(
        lambda *_: bool(event.wait()) and None
    )
    yield event
    event.set()
    hook.remove()


@pytest.fixture
def photos() -> list[bytes]:
    """A dozen different PNGs of noise."""
    noise = torch.Generator().manual_seed(0)
    found = []
    for _ in range(12):
        pixels = torch.randint(256, (40, 48, 3), generator=noise, dtype=torch.uint8)
        found.append(image_file(Image.fromarray(pixels.numpy())))
    return found


@pytest.fixture
def photo(photos: list[bytes]) -> bytes:
    """A PNG."""
    return photos[0]


def bomb(side: int) -> bytes:
    """A black PNG of side x side pixels, in a few kilobytes."""
    return image_file(Image.new("1", (side, side)))


def form(photo: bytes) -> tuple[dict[str, str], bytes]:
    """Headers and body of a request for captions."""
    head = b'--b\r\nContent-Disposition: form-data; name="photo"; filename="photo"\r\n\r\n'
    return {"Content-Type": "multipart/form-data; boundary=b"}, head + photo + b"\r\n--b--\r\n"


def assert_refused(answer: httpx.Response, status: int, sentence: str) -> None:
    """The answer has this status, and an error that begins so."""
    assert answer.status_code == status
    assert answer.json()["error"].startswith(sentence)


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait for what happens in another thread; it fails where that never happens."""
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def waiting(client: httpx.Client | TestClient) -> int:
    """How many photos wait or are being captioned."""
    return int(client.get("/health").json()["waiting"])
