"""The server on a real socket, seen by clients that keep it waiting or send nonsense."""

import json
import logging
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from http.client import HTTPResponse

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from captioning.captioner import Captioner
from captioning.serving import Limits, faults_on_stderr
from tests.serving.conftest import Serve, form, served, wait_for, waiting

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


def test_others_are_answered_beside_400_idle_and_200_dripping_clients(serve: Serve) -> None:
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
    client = serve(requests=1, seconds=1.0)
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


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="an option of Linux")
@pytest.mark.parametrize("is_read", [True, False])
def test_a_large_answer_may_be_taken_slowly_but_not_for_ever(is_read: bool) -> None:
    size = 30_000_000

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http"
        headers = [(b"content-length", b"%d" % size), (b"connection", b"close")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": bytes(size)})

    with (
        served(app, Limits(seconds=1.0)) as address,
        sent(httpx.Client(base_url=address, verify=False), GOOD) as connection,
    ):
        for _ in range(30):
            time.sleep(0.1)
            if is_read:
                connection.recv(500_000)
        received = 0
        with suppress(ConnectionResetError):
            received = len(rest(connection))
        assert (received > 0) == is_read


@pytest.mark.parametrize(
    ("request_", "statuses"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", [400]),
        (b"GET / HTTP/1.1\r\n\r\n", [400]),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", [400]),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nno colon\r\n\r\n", [400]),
        (b"GET /" + b"x" * 100_000, [414, 431]),
        (GOOD[:-2] + b"".join(b"X%d: 1\r\n" % n for n in range(200)) + b"\r\n", [431]),
        (GOOD[:-2] + b"X: " + b"x" * 1_000_000 + b"\r\n\r\n", [431]),
        (POST + b"Content-Length: -1\r\n\r\n", [400]),
        (POST + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n", [400]),
        (POST + b"Content-Length: 99999999999\r\n\r\n", [413]),
        (POST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n", [400]),
        (POST + b"Transfer-Encoding: gzip\r\n\r\n", [400, 501]),
        (POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", [400]),
        (b"BREW / HTTP/1.1\r\nHost: localhost\r\n\r\n", [405]),
        (b"GET /../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n", [404]),
        (GOOD[:-2] + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n", [200]),
    ],
)
def test_malformed_requests_are_refused(serve: Serve, request_: bytes, statuses: list[int]) -> None:
    client = serve()
    with sent(client, request_) as connection:
        assert first_answer(connection)[0] in statuses
    assert client.get("/health").status_code == 200


def test_a_body_that_is_longer_than_announced_is_not_a_second_request(
    serve: Serve, photo: bytes
) -> None:
    with sent(serve(), upload(photo) + b"and more\r\n\r\n") as connection:
        received = rest(connection)
    assert received.count(b"HTTP/1.1 200") == 1
    assert received.count(b"HTTP/1.1 400") == 1


def test_requests_that_come_at_once_are_answered_in_turn(serve: Serve) -> None:
    with sent(serve(), GOOD * 50 + GOOD[:-2] + b"Connection: close\r\n\r\n") as connection:
        assert rest(connection).count(b"HTTP/1.1 200 OK") == 51


def test_a_photo_whose_client_has_gone_is_neither_captioned_nor_a_fault(
    serve: Serve,
    held: threading.Event,
    captioner: Captioner,
    photo: bytes,
    capsys: pytest.CaptureFixture[str],
) -> None:
    begun = threading.Event()
    captioner.fast.encoder.register_forward_pre_hook(lambda *_: begun.set(), prepend=True)
    client = serve()
    with faults_on_stderr(), sent(client, upload(photo)) as patient:
        assert begun.wait(20)  # or both photos might be of one batch
        with sent(client, upload(photo)):
            wait_for(lambda: waiting(client) == 2)
        wait_for(lambda: waiting(client) == 1)
        held.set()
        assert first_answer(patient)[0] == 200
    assert client.get("/health").json()["photos"] == 1
    assert capsys.readouterr().err == ""


def test_a_fault_is_logged_as_one_line(
    serve: Serve, captioner: Captioner, photo: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("out\nof memory")

    captioner.fast.encoder.register_forward_pre_hook(fail)
    logged: list[str] = []
    with faults_on_stderr():
        assert serve().post("/caption", files={"photo": photo}).status_code == 500
        wait_for(lambda: logged.append(capsys.readouterr().err) or "".join(logged).endswith("\n"))
    [line] = "".join(logged).splitlines()
    assert line.startswith("captioning: Application callable raised an exception: RuntimeError: ")
    assert "out of memory (test_server.py, line " in line


def test_a_long_fault_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    with faults_on_stderr():
        try:
            raise RuntimeError("x" * 1000)
        except RuntimeError:
            logging.getLogger("asyncio").exception("a callback failed")
    line = capsys.readouterr().err
    assert line.startswith("captioning: a callback failed: RuntimeError: xxx")
    assert len(line) == 301
