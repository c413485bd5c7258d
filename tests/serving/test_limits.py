import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.serving.conftest import Serve, form, wait_for, waiting
from tests.serving.photos import bomb
from tests.serving.test_batching import connection


def test_a_bomb_is_refused_before_it_is_decoded(client: httpx.Client) -> None:
    peak = Path("/proc/self/clear_refs")
    if not peak.exists():
        pytest.skip("the peak of memory is told on Linux only")
    photo = bomb(10_000)  # decoded, 100 MB
    client.post("/caption", files={"photo": bomb(100)})
    before = memory("VmRSS")
    peak.write_text("5")  # the peak begins anew
    answer = client.post("/caption", files={"photo": ("bomb.png", photo)})
    assert memory("VmHWM") - before < 20e6
    assert (answer.status_code, answer.json()["error"]) == (
        413,
        "bomb.png: 10000 x 10000 pixels are more than the 50 million that are read here; "
        "scale the photo down",
    )


def test_a_bomb_that_pillow_refuses_itself_is_too_large_too(client: httpx.Client) -> None:
    answer = client.post("/caption", files={"photo": ("bomb.png", bomb(15_000))})
    assert answer.status_code == 413
    assert answer.json()["error"].startswith("bomb.png: too many pixels")


@pytest.mark.parametrize("tells_length", [True, False])
def test_a_body_over_the_limit_is_refused_whatever_its_headers_say(
    serve: Serve, tells_length: bool
) -> None:
    client = serve(bytes=100_000)
    headers, body = form(bytes(300_000))
    parts = (body[start : start + 1000] for start in range(0, len(body), 1000))
    answer = client.post("/caption", content=body if tells_length else parts, headers=headers)
    assert (answer.status_code, answer.json()["error"]) == (
        413,
        "more than the 0.1 MB that are read here; send less",
    )


def test_a_request_over_the_time_limit_is_given_up(serve: Serve, photo: bytes) -> None:
    client = serve(seconds=0.2)
    headers, body = form(photo)

    def slowly() -> Iterator[bytes]:
        yield body[:100]
        time.sleep(0.5)
        yield body[100:]

    answer = client.post("/caption", content=slowly(), headers=headers)
    assert answer.status_code == 504
    assert answer.json()["error"].startswith("this took longer than the 0.2 seconds")
    assert waiting(client) == 0


def test_requests_beyond_the_queue_are_refused_until_there_is_room(
    serve: Serve, photo: bytes
) -> None:
    client = serve(requests=1)
    headers, body = form(photo)
    first = connection(client)
    first.request("POST", "/caption", None, headers | {"Content-Length": str(len(body))})
    first.send(body[:100])
    wait_for(lambda: waiting(client) == 1)
    refused = client.post("/caption", files={"photo": photo})
    assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
    assert refused.json()["error"] == "1 requests are waiting already; try again in a moment"
    first.send(body[100:])
    assert first.getresponse().status == 200
    first.close()
    assert client.post("/caption", files={"photo": photo}).status_code == 200


def test_a_client_that_leaves_makes_room(serve: Serve, photo: bytes) -> None:
    client = serve(requests=1)
    headers, body = form(photo)
    gone = connection(client)
    gone.request("POST", "/caption", None, headers | {"Content-Length": str(len(body))})
    gone.send(body[:100])
    wait_for(lambda: waiting(client) == 1)
    gone.close()
    wait_for(lambda: waiting(client) == 0)
    assert client.post("/caption", files={"photo": photo}).status_code == 200


def memory(name: str) -> int:
    """Bytes of this process's memory, now (VmRSS) or at its peak (VmHWM)."""
    status = Path("/proc/self/status").read_text()
    return int(status.split(f"{name}:")[1].split()[0]) * 1024
