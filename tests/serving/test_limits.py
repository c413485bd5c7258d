import json
import threading
from http.client import HTTPConnection
from pathlib import Path

import httpx
import pytest

from tests.serving.conftest import Serve, form, wait_for, waiting
from tests.serving.photos import bomb
from tests.serving.test_batching import connection


def test_a_bomb_is_refused_before_it_is_decoded(client: httpx.Client) -> None:
    peak = Path("/proc/self/clear_refs")
    if not peak.exists():
        pytest.skip("peak memory is known on Linux only")
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


def test_a_request_over_the_time_limit_is_given_up(
    serve: Serve, held: threading.Event, photo: bytes
) -> None:
    client = serve(seconds=0.2)
    answer = client.post("/caption", files={"photo": photo})
    assert answer.status_code == 504
    assert answer.json()["error"].startswith("this took longer than the 0.2 seconds")
    assert waiting(client) == 0


def test_a_body_over_the_time_limit_is_given_up(serve: Serve, photo: bytes) -> None:
    client = serve(seconds=0.2)
    slow = half_sent(client, photo)
    answer = slow.getresponse()
    assert answer.status == 408
    assert json.load(answer)["error"].startswith("the photo did not arrive within the 0.2 seconds")
    slow.close()


def test_slow_bodies_hold_no_place(serve: Serve, photo: bytes) -> None:
    client = serve(requests=1)
    slow = [half_sent(client, photo) for _ in range(5)]
    assert waiting(client) == 0
    assert client.post("/caption", files={"photo": photo}).status_code == 200
    for one in slow:
        one.send(form(photo)[1][100:])
        assert one.getresponse().read()
        one.close()


def test_requests_beyond_the_queue_are_refused_until_there_is_room(
    serve: Serve, held: threading.Event, photo: bytes
) -> None:
    client = serve(requests=1)
    headers, body = form(photo)
    first = connection(client)
    first.request("POST", "/caption", body, headers)
    wait_for(lambda: waiting(client) == 1)
    refused = client.post("/caption", files={"photo": photo})
    assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
    assert refused.json()["error"] == "1 requests are waiting already; try again in a moment"
    held.set()
    assert first.getresponse().status == 200
    first.close()
    assert client.post("/caption", files={"photo": photo}).status_code == 200


def test_a_client_that_leaves_makes_room(serve: Serve, held: threading.Event, photo: bytes) -> None:
    client = serve(requests=1)
    headers, body = form(photo)
    gone = connection(client)
    gone.request("POST", "/caption", body, headers)
    wait_for(lambda: waiting(client) == 1)
    gone.close()
    wait_for(lambda: waiting(client) == 0)
    held.set()
    assert client.post("/caption", files={"photo": photo}).status_code == 200


@pytest.mark.parametrize("kind", ["", '; filename="photo"'])
def test_a_form_has_few_parts(client: httpx.Client, kind: str) -> None:
    part = f'--b\r\nContent-Disposition: form-data; name="photo"{kind}\r\n\r\nx\r\n'
    headers = {"Content-Type": "multipart/form-data; boundary=b"}
    answer = client.post("/caption", content=part * 30 + "--b--\r\n", headers=headers)
    assert answer.status_code == 400
    assert "Too many" in answer.json()["error"]


def half_sent(client: httpx.Client, photo: bytes) -> HTTPConnection:
    """A connection on which the first bytes of a request have been sent."""
    slow = connection(client)
    headers, body = form(photo)
    slow.request("POST", "/caption", None, headers | {"Content-Length": str(len(body))})
    slow.send(body[:100])
    return slow


def memory(name: str) -> int:
    """Bytes of this process's memory, now (VmRSS) or at its peak (VmHWM)."""
    status = Path("/proc/self/status").read_text()
    return int(status.split(f"{name}:")[1].split()[0]) * 1024
