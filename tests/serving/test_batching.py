import io
import threading
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection

import httpx
from PIL import Image

from captioning.captioner import Captioner
from tests.serving.conftest import Serve, form, wait_for, waiting


def test_concurrent_photos_are_captioned_as_one_batch(
    serve: Serve, held: threading.Event, captioner: Captioner, photos: list[bytes]
) -> None:
    client = serve(batch_size=6)
    with ThreadPoolExecutor(len(photos)) as clients:
        answers = [
            clients.submit(client.post, "/caption", files={"photo": photo}) for photo in photos
        ]
        wait_for(lambda: waiting(client) == len(photos))
        held.set()
        texts = [answer.result().json()["captions"][0]["caption"] for answer in answers]
    health = client.get("/health").json()
    assert health["photos"] == len(photos)
    assert health["batches"] <= len(photos) // 2
    expected = captioner.caption([Image.open(io.BytesIO(photo)) for photo in photos])
    assert texts == [caption.text for caption in expected]


def test_requests_of_different_settings_are_not_mixed_up(
    serve: Serve, held: threading.Event, photos: list[bytes]
) -> None:
    client = serve()
    with ThreadPoolExecutor(6) as clients:
        answers = [
            clients.submit(
                client.post,
                "/caption",
                files={"photo": photos[0]},
                data={"beam": str(width), "captions": str(width)},
            )
            for width in (1, 2, 3, 1, 2, 3)
        ]
        wait_for(lambda: waiting(client) == 6)
        held.set()
        counts = [len(answer.result().json()["captions"]) for answer in answers]
    assert counts == [1, 2, 3, 1, 2, 3]


def test_photos_with_maps_that_take_long_are_batches_by_themselves(
    serve: Serve, held: threading.Event, photos: list[bytes]
) -> None:
    client = serve(batch_size=6)
    chosen = {"view": "true", "map": "occlusion"}
    with ThreadPoolExecutor(4) as clients:
        answers = [
            clients.submit(client.post, "/caption", files={"photo": photo}, data=chosen)
            for photo in photos[:4]
        ]
        wait_for(lambda: waiting(client) == 4)
        held.set()
        assert [answer.result().status_code for answer in answers] == [200] * 4
    health = client.get("/health").json()
    assert (health["photos"], health["batches"]) == (4, 4)


def test_a_photo_whose_client_has_gone_is_not_captioned(
    serve: Serve, held: threading.Event, captioner: Captioner, photo: bytes
) -> None:
    begun = threading.Event()
    captioner.encoder.register_forward_pre_hook(lambda *_: begun.set(), prepend=True)
    client = serve()
    with ThreadPoolExecutor(1) as clients:
        answer = clients.submit(client.post, "/caption", files={"photo": photo})
        assert begun.wait(20)  # or both photos might be of one batch
        impatient = connection(client)
        headers, body = form(photo)
        impatient.request("POST", "/caption", body, headers)
        wait_for(lambda: waiting(client) == 2)
        impatient.close()
        wait_for(lambda: waiting(client) == 1)
        held.set()
        assert answer.result().status_code == 200
    assert client.get("/health").json()["photos"] == 1


def test_a_failure_of_the_model_is_reported_and_the_next_photo_is_captioned(
    serve: Serve, captioner: Captioner, photo: bytes
) -> None:
    client = serve()

    def fail(*_: object) -> None:
        raise RuntimeError("out of memory")

    hook = captioner.encoder.register_forward_pre_hook(fail)
    # After an unforeseen error the server closes the connection, which must not be used again.
    answer = client.post("/caption", files={"photo": photo}, headers={"Connection": "close"})
    hook.remove()
    assert (answer.status_code, answer.json()) == (
        500,
        {"error": "the server made a mistake; its log says more"},
    )
    assert client.post("/caption", files={"photo": photo}).status_code == 200


def connection(client: httpx.Client) -> HTTPConnection:
    """A bare connection to the client's server."""
    return HTTPConnection(client.base_url.host, client.base_url.port or 80, timeout=20)
