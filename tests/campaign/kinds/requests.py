"""Hostile requests to a server on this machine: malformed, with odd fields and photos, and slow."""

import json
import re
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from os import kill
from pathlib import Path
from random import Random

from tests.campaign import judge
from tests.campaign.cases import Case, Kind, Steps
from tests.campaign.forks import Call, Child
from tests.campaign.kinds.damage import damaged
from tests.campaign.kinds.given import NUMBERS, WORDS
from tests.campaign.kinds.images import MAKERS
from tests.campaign.world import World

PATIENCE = 40.0
"""Seconds within which a whole request is answered: the server's own limit, and some more."""

IDLE, OPEN_FILES = 400, 256
"""Connections that say nothing, and files that the server may have open."""

LOCKED_OUT = 30.0
"""Seconds after which somebody else must be answered again."""

ANSWERED, REFUSED, CLOSED = 0, 1, 2
"""Exit codes of a client: 2xx or 3xx, 4xx, and no answer at all."""


@dataclass(frozen=True)
class Request:
    """What a client sends.

    Attributes:
        label: what it tries.
        parts: of the bytes, each sent after a pause.
        pause: seconds before each part but the first.
        is_whole: whether an answer is due, as the request is of HTTP and complete.
        refused: whether the answer must be a refusal.
    """

    label: str
    parts: tuple[bytes, ...]
    pause: float = 0.0
    is_whole: bool = True
    refused: bool = False


def _case(world: World, number: int, random: Random, folder: Path) -> Case:
    make = random.choices(list(MAKES), weights=list(MAKES.values()))[0]
    request = make(world, random)
    return Case(request.label, _steps(world, request, folder))


def _steps(world: World, request: Request, folder: Path) -> Steps:
    _, _, port = (world.folder / "address").read_text().rpartition(":")
    outcome = yield Call(instead=lambda: _client(request, int(port)), seconds=2 * PATIENCE)
    told = [line for line in outcome.out.splitlines() if line.startswith("fault ")]
    return [
        *judge.faults(outcome, folder, silent=True),
        *(line.removeprefix("fault ") for line in told),
    ]


def _client(request: Request, port: int) -> int:
    """Send the request, print what is wrong with its answer; in a child."""
    begun = time.monotonic()
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
        answer = b""
        with suppress(OSError):  # a server may close before all is sent
            for number, part in enumerate(request.parts):
                if number:
                    time.sleep(request.pause)
                connection.sendall(part)
        connection.settimeout(PATIENCE if request.is_whole else 1.0)
        try:
            while (received := connection.recv(2**16)) and len(answer) < 10**7:
                answer += received
        except TimeoutError:
            if request.is_whole:
                print(f"fault hang: no answer in {time.monotonic() - begun:.0f} s")
        except OSError:
            pass
    if (health := _health(port, 10)) is not None:
        print(f"fault {health}")
    return _told_of(answer, request)


def _told_of(answer: bytes, request: Request) -> int:
    if not answer:
        if request.is_whole:
            print("fault other: closed without an answer")
        print("closed")
        return CLOSED
    head, _, body = answer.partition(b"\r\n\r\n")
    if length := re.search(rb"content-length: *([0-9]+)", head.lower()):
        body = body[: int(length[1])]  # answers to further requests follow
    words = head.split(None, 2)
    status = int(words[1]) if len(words) > 1 and words[1].isdigit() else 0
    print(f"answered {status}")
    if not 100 <= status < 600 or (status >= 500 and status not in (501, 503, 504, 505)):
        print(f"fault other: status {status}: {body[:200]!r}")
    if status >= 400 and body and b"chunked" not in head.lower():
        try:
            sentence = json.loads(body)["error"]
        except (ValueError, KeyError, TypeError):
            print(f"fault other: a refusal that is no JSON with an error: {body[:80]!r}")
        else:
            if "\x1b" in sentence or "\n" in sentence:
                print("fault other: raw control characters in an error")
    if request.refused and status < 400:
        print(f"fault other: {request.label} is answered by {status}")
    return REFUSED if status >= 400 else ANSWERED


def _health(port: int, seconds: float) -> str | None:
    """A fault where the server does not answer the simplest question in time."""
    asked = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=seconds) as connection:
            connection.sendall(asked)
            answer = connection.recv(2**16)
    except OSError as error:
        return f"hang: /health gives no answer in {seconds:.0f} s ({error})"
    if not answer.startswith(b"HTTP/1.1 200"):
        return f"other: /health gives {answer[:80]!r}"
    return None


def _http(
    body: bytes, *headers: str, line: str = "POST /caption HTTP/1.1", host: str = ""
) -> bytes:
    """A request that closes the connection."""
    told = (line, f"Host: {host or '127.0.0.1'}", "Connection: close", *headers)
    head = "".join(f"{header}\r\n" for header in (*told, f"Content-Length: {len(body)}"))
    return head.encode("latin-1", "replace") + b"\r\n" + body


def _form(fields: list[tuple[str, bytes, str | None]], *headers: str, host: str = "") -> bytes:
    parts = []
    for name, content, filename in fields:
        file = "" if filename is None else f'; filename="{filename}"'
        told = f'--b\r\nContent-Disposition: form-data; name="{name}"{file}\r\n\r\n'
        parts.append(told.encode("utf-8", "surrogateescape") + content + b"\r\n")
    body = b"".join(parts) + b"--b--\r\n"
    return _http(body, "Content-Type: multipart/form-data; boundary=b", *headers, host=host)


def _photo(world: World) -> tuple[str, bytes, str | None]:
    return ("photo", world.photos[0].read_bytes(), "photo.jpg")


def _of_photos(world: World, random: Random) -> Request:
    make = random.choices(list(MAKERS), weights=list(MAKERS.values()))[0]
    name = random.choice(("photo.jpg", "", "\x1b[31m.png", "a" * 5000, "\u65e5.png", "../../x"))
    fields = [("photo", make(random), name)]
    return Request(f"a photo: {make.__name__.strip('_')}", (_form(fields),))


def _of_fields(world: World, random: Random) -> Request:
    known = ("captions", "beam", "sample", "temperature", "view")
    fields = [_photo(world)] if random.random() < 0.9 else []
    told = []
    for _ in range(random.randint(1, 3)):
        name = random.choice((*known, *known, "x", "", "photo", "\x1b[31m", "captions[]"))
        value = random.choice(random.choice((NUMBERS, WORDS, ("1", "2", "true"))))
        fields.append((name, value.encode("utf-8", "surrogateescape"), None))
        told.append(f"{name!r}: {value[:40]!r}")
    random.shuffle(fields)
    return Request(", ".join(told), (_form(fields),))


def _of_many_parts(world: World, random: Random) -> Request:
    count = random.choice((500, 2000, 20_000))
    return Request(f"{count} fields", (_form([("x", b"1", None)] * count + [_photo(world)]),))


def _damaged(world: World, random: Random) -> Request:
    content = damaged(_form([_photo(world)]), random)
    return Request("damaged bytes", (content,), is_whole=False)


def _damaged_body(world: World, random: Random) -> Request:
    _, _, body = _form([_photo(world)]).partition(b"\r\n\r\n")
    kind = random.choice(
        (
            "multipart/form-data; boundary=b",
            "multipart/form-data; boundary=" + "b" * 1000,
            "multipart/form-data",
            "multipart/form-data; boundary=",
            "multipart/mixed; boundary=b",
            "application/json",
            "application/x-www-form-urlencoded",
            "text/plain",
            "",
        )
    )
    body = damaged(body, random)
    return Request(f"a damaged form of {kind[:40]!r}", (_http(body, f"Content-Type: {kind}"),))


def _malformed(world: World, random: Random) -> Request:
    host = "Host: 127.0.0.1\r\n"
    text = random.choice(
        (
            "\r\n" * 1000,
            "GET\r\n\r\n",
            "GET /\r\n\r\n",
            f"GET / HTTP/9.9\r\n{host}\r\n",
            f"GET  /  HTTP/1.1\r\n{host}\r\n",
            f"GET /{'a' * 10**5} HTTP/1.1\r\n{host}\r\n",
            f"GET / HTTP/1.1\r\n{host}{'X: y' + chr(13) + chr(10)}" * 1,
            f"GET / HTTP/1.1\r\n{host}" + "X: y\r\n" * 10_000 + "\r\n",
            f"GET / HTTP/1.1\r\n{host}X: {'y' * 10**6}\r\n\r\n",
            f"GET / HTTP/1.1\r\n{host}X y\r\n\r\n",
            f"GET / HTTP/1.1\r\n{host}: y\r\n\r\n",
            f"GET / HTTP/1.1\r\n{host}X: a\x00b\r\n\r\n",
            "GET / HTTP/1.1\r\n\r\n",
            f"GET / HTTP/1.1\r\n{host}{host}\r\n",
            f"POST /caption HTTP/1.1\r\n{host}Content-Length: -1\r\n\r\n",
            f"POST /caption HTTP/1.1\r\n{host}Content-Length: {'9' * 5000}\r\n\r\n",
            f"POST /caption HTTP/1.1\r\n{host}Content-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
            f"POST /caption HTTP/1.1\r\n{host}Transfer-Encoding: chunked\r\n\r\nzz\r\n",
            f"POST /caption HTTP/1.1\r\n{host}Transfer-Encoding: chunked\r\n\r\n{'f' * 100}\r\n",
            f"POST /caption HTTP/1.1\r\n{host}Transfer-Encoding: x\r\n\r\n",
            f"POST /caption HTTP/1.1\r\n{host}Expect: 100-continue\r\nContent-Length: 9\r\n\r\n",
            f"GET / HTTP/1.1\r\n{host}Upgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
            f"CONNECT x:1 HTTP/1.1\r\n{host}\r\n",
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
            f"GET / HTTP/1.1\r\n{host}\r\n" * 500,
            f"GET /%ff%00/../..//etc/passwd?{'&' * 1000} HTTP/1.1\r\n{host}\r\n",
        )
    )
    return Request(f"malformed {text[:60]!r}", (text.encode("latin-1"),), is_whole=False)


def _noise(world: World, random: Random) -> Request:
    content = random.randbytes(random.choice((1, 100, 10_000)))
    return Request("noise", (content,), is_whole=False)


def _of_addresses(world: World, random: Random) -> Request:
    method = random.choice(
        ("GET", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "POST", "X", "get")
    )
    path = random.choice(
        (
            *("/", "/docs", "/health", "/caption", "/openapi.json", "/x", "//", "/%00", "*"),
            *("/..%2f..%2fetc", "/caption/", "/caption?x=1", "http://evil.example/", "/\u00e9"),
            f"/{'a' * 5000}",
        )
    )
    line = f"{method} {path} HTTP/1.1"
    return Request(f"{method} {path[:60]}", (_http(b"", line=line),), is_whole=path.isascii())


def _from_elsewhere(world: World, random: Random) -> Request:
    """From a page of another site, or by another name of this machine."""
    fields = [_photo(world)]
    if random.random() < 0.5:
        host = random.choice(
            ("evil.example", "evil.example:80", "169.254.1.1", "127.0.0.1.evil.example")
        )
        return Request(f"Host {host}", (_form(fields, host=host),), refused=True)
    origin = random.choice(("http://evil.example", "https://127.0.0.1.evil.example", "null"))
    return Request(f"Origin {origin}", (_form(fields, f"Origin: {origin}"),), refused=True)


def _slow(world: World, random: Random) -> Request:
    whole = _form([_photo(world)])
    cuts = sorted(random.sample(range(1, len(whole)), k=random.randint(1, 6)))
    parts = tuple(whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True))
    if random.random() < 0.5:  # and never the rest
        return Request("slow, and never whole", parts[:-1], pause=0.2, is_whole=False)
    return Request("slow", parts, pause=0.2)


def _gone(world: World, random: Random) -> Request:
    whole = _form([_photo(world)])
    return Request("gone at once", (whole[: random.randrange(len(whole))],), is_whole=False)


def _too_much(world: World, random: Random) -> Request:
    size = random.choice((21_000_000, 30_000_000))
    return Request(f"{size} bytes", (_form([("photo", bytes(size), "x.png")]),), refused=True)


MAKES: dict[Callable[[World, Random], Request], float] = {
    _of_photos: 22,
    _of_fields: 22,
    _of_many_parts: 1,
    _damaged: 8,
    _damaged_body: 10,
    _malformed: 14,
    _noise: 3,
    _of_addresses: 10,
    _from_elsewhere: 4,
    _slow: 3,
    _gone: 2,
    _too_much: 1,
}
"""What is sent, and how often."""


@contextmanager
def _served(world: World) -> Iterator[list[str]]:
    """A server while the requests come; in the end it is flooded with idle connections."""
    found: list[str] = []
    folder = world.folder / "serving"
    folder.mkdir()
    options = ["--model", str(world.model), "--host", "127.0.0.1", "--port", "0"]
    call = Call(["serve", *options], seconds=10_000, open_files=OPEN_FILES)
    server = Child(call, folder)
    while "\n" not in (address := server.out.read_text()):
        if (outcome := server.outcome()) is not None:
            raise RuntimeError(outcome.err)
        time.sleep(0.05)
    (world.folder / "address").write_text(address.strip())
    port = int(address.strip().rpartition(":")[2])
    try:
        yield found
        found += _flooded(port)
    finally:
        with suppress(ProcessLookupError):
            kill(server.pid, signal.SIGINT)
        ended = time.monotonic()
        while (outcome := server.outcome()) is None:
            if time.monotonic() - ended > PATIENCE:
                server._end("limit")
            time.sleep(0.05)
    found += judge.faults(outcome, folder)


def _flooded(port: int) -> list[str]:
    with ExitStack() as idle:
        for _ in range(IDLE):
            with suppress(OSError):
                idle.enter_context(socket.create_connection(("127.0.0.1", port), timeout=0.5))
        begun = time.monotonic()
        while (fault := _health(port, 2)) is not None:
            if time.monotonic() - begun > LOCKED_OUT:
                return [f"hang: {IDLE} idle connections lock others out: {fault}"]
            time.sleep(0.5)
    return []


REQUESTS = Kind("requests", whole=1000, tenth=100, case=_case, around=_served)
