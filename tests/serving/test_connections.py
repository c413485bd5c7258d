import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from http.client import HTTPResponse

import httpx
import pytest
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from captioning.serving import Limits
from captioning.serving.connections import READ
from tests.serving.conftest import Serve, form, served, wait_for

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


def answers(client: httpx.Client, data: bytes) -> bytes:
    """All that comes back until the server ends the connection."""
    with sent(client, data) as connection:
        return rest(connection)


def rest(connection: socket.socket) -> bytes:
    """What comes until the end, which is waited for."""
    received = []
    while data := connection.recv(65536):
        received.append(data)
    return b"".join(received)


def first_answer(connection: socket.socket) -> tuple[int, str]:
    """Status and error of the next answer."""
    with closing(HTTPResponse(connection)) as answer:
        answer.begin()
        body = json.loads(answer.read())
        return answer.status, body.get("error", "")


def is_cut(connection: socket.socket, data: bytes, pause: float = 0.0) -> bool:
    """Whether the server ends a connection on which the same is sent again and again."""
    end = time.monotonic() + 20
    try:
        while time.monotonic() < end:
            connection.sendall(data)
            time.sleep(pause)
    except ConnectionError:
        return True
    return False


def test_an_idle_connection_is_ended(serve: Serve) -> None:
    assert answers(serve(header_seconds=0.2), b"") == b""


def test_a_header_that_trickles_is_given_up_whatever_comes_meanwhile(serve: Serve) -> None:
    with sent(serve(header_seconds=0.4), b"GET /health HTTP/1.1\r\n") as connection:
        connection.settimeout(0.02)
        end = time.monotonic() + 20
        while time.monotonic() < end:
            connection.sendall(b"X")
            try:
                answer = connection.recv(65536)
                break
            except TimeoutError:
                continue
    assert answer.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
    assert b'{"error": "the header of this request did not arrive within 0.4 seconds' in answer


def test_the_next_header_on_a_connection_has_the_same_limit(serve: Serve) -> None:
    assert answers(serve(header_seconds=0.3), GOOD + b"GET /health").count(b"HTTP/1.1") == 2


def test_good_requests_are_answered_while_many_others_are_idle(serve: Serve) -> None:
    client = serve(connections=20)
    with ExitStack() as stack:
        for _ in range(60):
            stack.enter_context(sent(client, b"GET"))
        assert client.get("/health").status_code == 200


def test_slow_bodies_give_way_to_new_connections(serve: Serve) -> None:
    client = serve(connections=3)
    with ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(sent(client, POST + b"Content-Length: 1000\r\n\r\n"))
        assert client.get("/health").status_code == 200


def test_a_client_that_reads_no_answers_is_given_up(serve: Serve) -> None:
    client = serve(seconds=0.1, closing_seconds=0.1)
    with sent(client) as connection:
        assert is_cut(connection, GOOD.replace(b"/health", b"/") * 100)


@pytest.mark.parametrize("is_last", [True, False])
def test_a_large_answer_may_be_taken_slowly(is_last: bool) -> None:
    size = 16_000_000
    headers = [(b"content-length", b"%d" % size), (b"connection", b"close")]

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http"
        await send(
            {"type": "http.response.start", "status": 200, "headers": headers[: 1 + is_last]}
        )
        await send({"type": "http.response.body", "body": bytes(size)})

    limits = Limits(header_seconds=0.1, closing_seconds=0.1)
    with (
        served(app, limits) as address,
        sent(httpx.Client(base_url=address, verify=False), GOOD) as connection,
    ):
        time.sleep(1)
        assert len(rest(connection)) > size


@pytest.mark.parametrize(
    ("request_", "status", "reason"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400, "illegal request line"),
        (b"GET / HTTP/1.1\r\n\r\n", 400, "Missing mandatory Host"),
        (b"GET / HTTP/1.0\r\n\r\n", 400, "the Host header names no host"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", 400, "multiple Host"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nno colon\r\n\r\n", 400, "illegal header line"),
        (b"GET /" + b"x" * 100_000, 431, "this request cannot be read"),
        (POST + b"Content-Length: -1\r\n\r\n", 400, "bad Content-Length"),
        (POST + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n", 400, "bad Content-Length"),
        (POST + b"Content-Length: 99999999999\r\n\r\n", 413, "more than the 20 MB"),
        (POST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n", 400, "Content-Length"),
        (POST + b"Transfer-Encoding: gzip\r\n\r\n", 501, "Transfer-Encoding"),
        (POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400, "illegal chunk header"),
        (b"BREW / HTTP/1.1\r\nHost: localhost\r\n\r\n", 405, "another method"),
        (b"CONNECT a:1 HTTP/1.1\r\nHost: localhost\r\n\r\n", 404, "unknown address"),
        (b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n", 404, "unknown address"),
        (b"GET http://a/ HTTP/1.1\r\nHost: localhost\r\n\r\n", 404, "unknown address"),
    ],
)
def test_malformed_requests_get_an_error_in_json(
    client: httpx.Client, request_: bytes, status: int, reason: str
) -> None:
    with sent(client, request_) as connection:
        answered, error = first_answer(connection)
    assert answered == status
    assert reason in error


@pytest.mark.parametrize(
    "headers",
    [b"".join(b"X%d: 1\r\n" % number for number in range(200)), b"X: " + b"x" * 20_000 + b"\r\n"],
    ids=["many", "long"],
)
def test_headers_are_few_and_short(client: httpx.Client, headers: bytes) -> None:
    with sent(client, GOOD[:-2] + headers + b"\r\n") as connection:
        assert first_answer(connection)[0] == 431


def test_a_client_that_sends_on_sees_why_it_was_refused(client: httpx.Client) -> None:
    with sent(client, b"no request\r\n\r\n") as connection:
        connection.sendall(bytes(3_000_000))
        status, error = first_answer(connection)
    assert status == 400
    assert "this request cannot be read" in error


def test_a_body_without_end_is_cut_after_its_answer(serve: Serve) -> None:
    client = serve(bytes=10_000, closing_seconds=60.0)
    with sent(client, POST + b"Transfer-Encoding: chunked\r\n\r\n") as connection:
        assert is_cut(connection, b"1000\r\n" + bytes(4096) + b"\r\n")


def test_a_body_that_trickles_on_after_its_answer_has_little_time(serve: Serve) -> None:
    client = serve(closing_seconds=0.2)
    with sent(client, POST + b"Content-Length: 99999999999\r\n\r\n") as connection:
        assert first_answer(connection)[0] == 413
        assert is_cut(connection, b"x", pause=0.01)


def test_little_is_parsed_before_others_have_their_turn(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = []
    parse = H11Protocol.data_received
    monkeypatch.setattr(
        H11Protocol,
        "data_received",
        lambda self, data: (sizes.append(len(data)), parse(self, data)),
    )
    chunks = b"1\r\nx\r\n" * 100_000
    with sent(client, POST + b"Transfer-Encoding: chunked\r\n\r\n" + chunks):
        wait_for(lambda: sum(sizes) > len(chunks))
    assert max(sizes) <= READ


def test_a_body_that_is_shorter_than_announced_keeps_nothing(client: httpx.Client) -> None:
    with sent(client, POST + b"Content-Length: 1000\r\n\r\nx"):
        pass
    wait_for(lambda: client.get("/health").json()["waiting"] == 0)


def test_a_body_that_is_longer_than_announced_is_no_second_request(
    serve: Serve, photo: bytes
) -> None:
    body = form(photo)[1]
    announced = b"Content-Length: %d\r\n\r\n" % len(body)
    received = answers(serve(), POST + announced + body + b"and more\r\n\r\n")
    assert received.count(b"HTTP/1.1 200") == 1
    assert received.count(b"HTTP/1.1 400") == 1


def test_requests_that_come_at_once_are_answered_in_turn(client: httpx.Client) -> None:
    last = GOOD[:-2] + b"Connection: close\r\n\r\n"
    assert answers(client, GOOD * 50 + last).count(b"HTTP/1.1 200 OK") == 51


def test_a_connection_has_so_many_requests(serve: Serve) -> None:
    received = answers(serve(keep_alive=3), GOOD * 10)
    assert received.count(b"HTTP/1.1 200 OK") == 3
    assert received.lower().count(b"connection: close") == 1


def test_a_websocket_is_an_ordinary_request(client: httpx.Client) -> None:
    upgrade = b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: AAAA\r\n\r\n"
    with sent(client, GOOD[:-2] + upgrade) as connection:
        assert first_answer(connection) == (200, "")
