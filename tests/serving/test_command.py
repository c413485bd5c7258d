"""The commands `serve` and `demo`, and what the demo shows."""

import io
import signal
import socket
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient
from starlette.types import ASGIApp

from captioning.captioner import load
from captioning.serving import Limits, Protection
from captioning.serving.demo import PIXELS, SPLIT, demo_application
from captioning.shapes import is_right, picture, random_scene
from captioning.web.page import PHOTOS
from tests.conftest import refusal
from tests.serving.conftest import process_of, served

NUMBER = 40


@pytest.fixture
def demo() -> ASGIApp:
    """The demo's app, with the small model for its photos, too."""
    return Protection(demo_application(Limits(), model="shapes"), Limits())


@pytest.fixture
def client(demo: ASGIApp) -> TestClient:
    return TestClient(demo, "http://localhost")  # as no photo is captioned, nothing needs to start


def test_most_captions_of_scenes_never_seen_are_right() -> None:
    drawn = [random_scene(np.random.default_rng([0, SPLIT, number])) for number in range(NUMBER)]
    pictures = [Image.fromarray(picture(scene, PIXELS)) for scene in drawn]
    captions = load("shapes")(pictures)
    right = [is_right(one.text, scene) for one, scene in zip(captions, drawn, strict=True)]
    assert sum(right) >= 0.8 * NUMBER


def test_a_number_always_gives_the_same_scene(client: TestClient) -> None:
    first, again, other = (client.get(f"/drawn/scenes/{number}").content for number in (7, 7, 8))
    assert first == again != other
    with Image.open(io.BytesIO(first)) as image:
        assert (image.format, image.size) == ("PNG", (PIXELS, PIXELS))


def test_the_page_offers_the_free_photos(client: TestClient) -> None:
    page = client.get("/")
    assert "img-src 'self'" in page.headers["content-security-policy"]
    assert len(PHOTOS) == 9
    for name in PHOTOS:
        assert f'src="photos/{name}"' in page.text
        with Image.open(io.BytesIO(client.get(f"/photos/{name}").content)) as image:
            assert image.format == "JPEG"
    assert client.get("/photos/..%2Fdemo.py").status_code == 404


@pytest.mark.integration
def test_the_command_captions_until_it_is_interrupted() -> None:
    captions = []
    with process_of(signal.SIGINT, "demo", "--no-browser") as url:
        for tab, picture in (("/", "photos/cat.jpg"), ("/drawn/", "scenes/1")):
            photo = httpx.get(url.join(tab + picture), timeout=60).content
            answer = httpx.post(url.join(f"{tab}caption"), files={"photo": photo}, timeout=60)
            captions.append(answer.json()["captions"][0])
    assert all(caption["words"] for caption in captions)
    assert "confidence" in captions[0]
    assert "confidence" not in captions[1]  # the model of scenes is not calibrated


@pytest.mark.integration
def test_the_page_shows_a_scene_at_once_and_others_on_request(browser: Any, demo: ASGIApp) -> None:
    with served(demo, Limits()) as address:
        page = browser.new_page(viewport={"width": 360, "height": 700})
        page.set_default_timeout(60_000)
        page.goto(address)
        page.get_by_text("Drawn scenes").click()
        page.wait_for_selector("#view canvas")
        first = page.text_content("#status")
        page.click("#scene")
        page.wait_for_selector(f"#status:not(:text-is('{first}'))")
        page.close()


@pytest.mark.integration
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_serve_prints_its_address_and_ends_by_a_signal(photo: bytes, end: int) -> None:
    with process_of(end, "serve", "--model", "shapes", "--port", "0", "--device", "cpu") as url:
        assert url.host == "127.0.0.1"
        chosen = {"view": "true", "map": "grad-cam"}
        answer = httpx.post(url.join("/caption"), files={"photo": photo}, data=chosen, timeout=30)
        idle = socket.create_connection((url.host, url.port), 20)
    idle.close()
    assert answer.json()["captions"][0]["words"]
    assert answer.json()["view"]["captions"][0]["maps"][0]["map"] == "grad-cam"


def test_a_taken_port_is_reported_before_the_model_is_loaded(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        complaint = refusal(["serve", "--model", "none.ckpt", "--port", str(port)], capsys)
    assert complaint.startswith(f"captioning: cannot listen on 127.0.0.1, port {port} (")
