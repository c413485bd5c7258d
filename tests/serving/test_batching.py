import io
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import httpx
import pytest
import torch
from PIL import Image
from starlette.testclient import TestClient

from captioning.captioner import Captioner
from tests.serving.conftest import Ask, Serve, assert_refused, wait_for, waiting


def answers_at_once(
    client: TestClient, held: Event, photos: Sequence[bytes], *settings: dict[str, str]
) -> list[httpx.Response]:
    """The answers to all photos, each with its settings, that wait for the model together."""

    def ask(photo: bytes, data: dict[str, str]) -> httpx.Response:
        return client.post("/caption", files={"photo": photo}, data=data)

    with ThreadPoolExecutor(len(photos)) as clients:
        answers = clients.map(ask, photos, settings or [{}] * len(photos))
        wait_for(lambda: waiting(client) == len(photos))
        held.set()
        return list(answers)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.usefixtures("two_threads")
def test_concurrent_photos_are_captioned_as_one_batch(
    ask: Ask, held: Event, captioner: Captioner, photos: list[bytes], threads: int
) -> None:
    torch.set_num_threads(threads)  # also of threads that begin later
    client = ask(batch_size=6)
    answers = answers_at_once(client, held, photos)
    texts = [answer.json()["captions"][0]["caption"] for answer in answers]
    health = client.get("/health").json()
    assert health["photos"] == len(photos)
    assert health["batches"] <= len(photos) // 2
    expected = captioner([Image.open(io.BytesIO(photo)) for photo in photos])
    assert texts == [caption.text for caption in expected]


def test_requests_of_other_settings_are_not_mixed_up(ask: Ask, held: Event, photo: bytes) -> None:
    widths = [1, 2, 3, 1, 2, 3]
    settings = [{"beam": str(width), "captions": str(width)} for width in widths]
    answers = answers_at_once(ask(), held, [photo] * 6, *settings)
    assert [len(answer.json()["captions"]) for answer in answers] == widths


@pytest.mark.parametrize("chosen", [{"view": "true", "map": "occlusion"}, {"text": "a circle"}])
def test_photos_with_slow_maps_or_texts_are_batches_alone(
    ask: Ask, held: Event, photos: list[bytes], chosen: dict[str, str]
) -> None:
    client = ask(batch_size=6)
    answers = answers_at_once(client, held, photos[:4], *[chosen] * 4)
    assert [answer.status_code for answer in answers] == [200] * 4
    health = client.get("/health").json()
    assert (health["photos"], health["batches"]) == (4, 4)


def test_a_photo_does_not_wait_for_the_slow_maps_of_another(
    ask: Ask, captioner: Captioner, photo: bytes
) -> None:
    has_begun, may_end = Event(), Event()

    def hold_the_first(*_: object) -> None:
        if not has_begun.is_set():
            has_begun.set()
            may_end.wait(20)

    captioner.network.accelerated.encoder.register_forward_pre_hook(hold_the_first)
    client, chosen = ask(seconds=10.0), {"view": "true", "map": "occlusion"}
    with ThreadPoolExecutor(1) as clients:
        slow = clients.submit(client.post, "/caption", files={"photo": photo}, data=chosen)
        assert has_begun.wait(20)
        assert client.post("/caption", files={"photo": photo}).status_code == 200
        may_end.set()
        assert slow.result().status_code == 200


def test_requests_beyond_the_queue_are_refused(ask: Ask, held: Event, photo: bytes) -> None:
    client = ask(queue=1)
    with ThreadPoolExecutor(1) as clients:
        first = clients.submit(client.post, "/caption", files={"photo": photo})
        wait_for(lambda: waiting(client) == 1)
        refused = client.post("/caption", files={"photo": photo})
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
        assert refused.json()["error"] == "1 photos are waiting; try again in a moment"
        held.set()
        assert first.result().status_code == 200
    assert client.post("/caption", files={"photo": photo}).status_code == 200


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have one loopback address")
def test_a_client_takes_half_of_the_queue_at_most(serve: Serve, held: Event, photo: bytes) -> None:
    client = serve(queue=4)
    transport = httpx.HTTPTransport(local_address="127.0.0.2")
    photos, one = [("photo", photo)] * 2, {"photo": photo}
    with (
        httpx.Client(base_url=client.base_url, transport=transport) as other,
        ThreadPoolExecutor(2) as clients,
    ):
        first = clients.submit(client.post, "/caption", files=photos)
        wait_for(lambda: waiting(client) == 2)
        assert client.post("/caption", files=one).status_code == 503
        second = clients.submit(other.post, "/caption", files=one)
        wait_for(lambda: waiting(client) == 3)
        held.set()
        assert (first.result().status_code, second.result().status_code) == (200, 200)


def test_a_request_over_the_time_limit_is_given_up(ask: Ask, held: Event, photo: bytes) -> None:
    client = ask(seconds=0.2)
    answer = client.post("/caption", files={"photo": photo})
    assert_refused(answer, 504, "no captions within the 0.2 seconds")
    assert waiting(client) == 0
