import io
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image

from captioning.captioner import load
from captioning.serving import Limits, application
from captioning.serving.demo import MODEL, PIXELS, SPLIT, scenes
from captioning.shapes import faults, picture, random_scene
from tests.serving.conftest import served

SCENES = 40
MEGABYTES = 3


@pytest.fixture(scope="module")
def demo() -> Iterator[str]:
    """The address of the demo, answered by a thread."""
    captioner, limits = load(MODEL), Limits()
    app = application(captioner, captioner.search, "demo", 16, limits, scenes=scenes)
    with served(app, limits) as address:
        yield address


def test_the_shipped_model_is_small() -> None:
    assert MODEL.stat().st_size <= MEGABYTES * 10**6


def test_most_captions_of_scenes_that_the_model_has_never_seen_are_right() -> None:
    drawn = [random_scene(np.random.default_rng([0, SPLIT, number])) for number in range(SCENES)]
    pictures = [Image.fromarray(picture(scene, PIXELS)) for scene in drawn]
    captions = load(MODEL).caption(pictures)
    right = [not faults(one.text, scene) for one, scene in zip(captions, drawn, strict=True)]
    assert sum(right) >= 0.8 * SCENES


def test_a_number_always_gives_the_same_scene(demo: str) -> None:
    first, again, other = (httpx.get(f"{demo}/scenes/{number}").content for number in (7, 7, 8))
    assert first == again != other
    with Image.open(io.BytesIO(first)) as image:
        assert (image.format, image.size) == ("PNG", (PIXELS, PIXELS))


def test_the_docs_say_what_a_scene_is_answered_as(demo: str) -> None:
    page = httpx.get(f"{demo}/docs").text
    assert "GET /scenes/{number}" in page
    assert "image/png" in page


@pytest.mark.parametrize("number", ["-1", "1000000", "one"])
def test_a_scene_that_is_not_there_is_refused_in_a_sentence(demo: str, number: str) -> None:
    answer = httpx.get(f"{demo}/scenes/{number}")
    assert answer.status_code == 422
    assert "number" in answer.json()["error"]


def test_the_command_draws_and_captions_until_it_is_interrupted(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "captioning", "demo", "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        photo = httpx.get(f"{address}/scenes/1", timeout=60).content
        answer = httpx.post(f"{address}/caption", files={"photo": photo}, timeout=60)
        process.send_signal(signal.SIGINT)
        assert process.wait() == 0
    assert answer.json()["captions"][0]["words"]


def test_the_page_shows_a_scene_at_once_and_another_one_on_request(browser: Any, demo: str) -> None:
    page = browser.new_page(viewport={"width": 360, "height": 700})
    page.set_default_timeout(60_000)
    page.goto(demo)
    page.wait_for_selector("#view canvas")
    first = page.text_content("#status")
    page.click("#scene")
    page.wait_for_selector(f"#status:not(:text-is('{first}'))")
    page.close()


def test_a_server_of_another_model_draws_no_scenes(client: httpx.Client) -> None:
    assert client.get("/scenes/1").status_code == 404
    assert '<p class="scenes" hidden>' in client.get("/").text
