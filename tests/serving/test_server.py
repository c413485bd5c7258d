"""The server on a real socket, seen by clients that keep it waiting or send nonsense."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from http.client import HTTPResponse

import httpx
import pytest

from captioning.captioner import Captioner
from tests.serving.conftest import Serve, form, wait_for, waiting

pytestmark = pytest.mark.integration

GOOD = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = (
    b"POST /caption HTTP/1.1\r\nHost: localhost\r\n"
    b"Content-Type: multipart/form-data; boundary=b\r\n"
)


@contextmanager
def sent(client: httpx.Client, data: bytes = b"") -> Iterator[socket.socket]:
    """A connection to the client's server on which something has been sent."""
    address = client.base_url.host, client.base_url.port
    with socket.create_connection(address, timeout=20) as connection:
        connection.sendall(data)
        yield connection


def rest(connection: socket.socket) -> bytes:
    """What the server sends until it ends the connection."""
    received = []
    while data := connection.recv(65536):
        received.append(data)
    return b"".join(received)


def first_answer(connection: socket.socket) -> tuple[int, str]:
    """Status and error of the next answer."""
    with closing(HTTPResponse(connection)) as answer:
        answer.begin()
        body = answer.read()
        return answer.status, json.loads(body).get("error", "") if body else ""


def upload(photo: bytes) -> bytes:
    """A whole request for captions."""
    body = form(photo)[1]
    return POST + b"Content-Length: %d\r\n\r\n" % len(body) + body


def test_others_are_answered_beside_idle_and_dripping_clients(serve: Serve) -> None:
    client = serve(header_seconds=1.0, seconds=2.0)
    drips = [b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ", POST + b"Content-Length: 9999\r\n\r\n"]
    with ExitStack() as stack:
        for _ in range(400):
            stack.enter_context(sent(client))
        dripping = [stack.enter_context(sent(client, drips[n % 2])) for n in range(200)]
        slowest = 0.0
        for _ in range(10):
            for one in dripping:
                with suppress(OSError):  # the server gives it up meanwhile
                    one.sendall(b"x")
            begun = time.monotonic()
            assert client.get("/health").status_code == 200
            slowest = max(slowest, time.monotonic() - begun)
            time.sleep(0.3)
    assert slowest < 1


@pytest.mark.parametrize("start", [b"", b"GET /health HTTP/1.1\r\nX: ", GOOD + b"GET /health"])
def test_a_header_that_does_not_arrive_ends_the_connection(serve: Serve, start: bytes) -> None:
    with sent(serve(header_seconds=0.3), start) as connection:
        begun = time.monotonic()
        assert rest(connection).count(b"HTTP/1.1 200") == start.count(GOOD)
        assert time.monotonic() - begun < 5


def test_a_slow_body_is_given_up_and_takes_no_place_from_others(serve: Serve, photo: bytes) -> None:
    client = serve(queue=1, seconds=1.0)
    with ExitStack() as stack:
        slow = [stack.enter_context(sent(client, upload(photo)[:400])) for _ in range(5)]
        assert waiting(client) == 0
        assert client.post("/caption", files={"photo": photo}).status_code == 200
        for one in slow:
            status, sentence = first_answer(one)
            assert status == 408
            assert sentence.startswith("the photo did not arrive within the 1 seconds")


def test_uploads_that_fill_the_memory_are_refused(serve: Serve, photo: bytes) -> None:
    client = serve(uploads=30_000)
    with sent(client, upload(bytes(50_000))[:28_000]):
        time.sleep(0.5)  # until it has arrived
        wait_for(lambda: client.post("/caption", files={"photo": photo}).status_code == 503)
    wait_for(lambda: client.post("/caption", files={"photo": photo}).status_code == 200)


@pytest.mark.parametrize(
    ("request_", "statuses"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", [400]),
        (b"GET / HTTP/1.1\r\n\r\n", [400]),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", [400]),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nno colon\r\n\r\n", [400]),
        (b"GET /" + b"x" * 100_000, [414, 431]),
        (GOOD[:-2] + b"X: " + b"x" * 1_000_000 + b"\r\n\r\n", [431]),
        (POST + b"Content-Length: 99999999999\r\n\r\n", [413]),
        (POST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n", [400]),
        (POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", [400]),
        (b"GET /../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n", [404]),
    ],
)
def test_malformed_requests_are_refused(serve: Serve, request_: bytes, statuses: list[int]) -> None:
    client = serve()
    with sent(client, request_) as connection:
        assert first_answer(connection)[0] in statuses
    assert client.get("/health").status_code == 200


def test_a_photo_whose_client_has_gone_is_not_captioned(
    serve: Serve,
    held: threading.Event,
    captioner: Captioner,
    photo: bytes,
    caplog: pytest.LogCaptureFixture,
) -> None:
    begun = threading.Event()
    captioner.network.accelerated.encoder.register_forward_pre_hook(
        lambda *_: begun.set(), prepend=True
    )
    client = serve()
    with sent(client, upload(photo)) as patient:
        assert begun.wait(20)  # or both photos might be of one batch
        with sent(client, upload(photo)):
            wait_for(lambda: waiting(client) == 2)
        wait_for(lambda: waiting(client) == 1)
        held.set()
        assert first_answer(patient)[0] == 200
    assert client.get("/health").json()["photos"] == 1
    assert caplog.text == ""


def test_a_fault_is_logged_with_its_traceback(
    serve: Serve, captioner: Captioner, photo: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("out of order")

    captioner.network.accelerated.encoder.register_forward_pre_hook(fail)
    assert serve().post("/caption", files={"photo": photo}).status_code == 500
    wait_for(lambda: "RuntimeError: out of order" in caplog.text)
    assert "Traceback" in caplog.text
