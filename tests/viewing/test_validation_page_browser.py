"""What a training's page does in a real browser, opened from disk."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from captioning.viewing import validation_page
from captioning.viewing.curves import Point
from captioning.viewing.validation_page import Example, PastCaption
from tests.conftest import opened_page

pytestmark = pytest.mark.integration

MARKUP = "<img src=x onerror=document.title='run'>"


def example(*words: str) -> Example:
    maps = np.eye(16, dtype=np.float32)[: len(words)].reshape(-1, 4, 4)
    told = [{"word": word, "probability": 0.5} for word in words]
    crop, text = (15.0, 0.0, 60.0, 60.0), " ".join(words)
    caption = {"caption": text, "words": told, "crop": crop, "maps": {"attention": maps}}
    history = [PastCaption(n / 2, text, {"BLEU-4": 0.5, "CIDEr": 1.0}) for n in range(1, 12)]
    photo = Image.new("RGB", (90, 60), "grey")
    return Example("a" * 60 + ".jpg", photo, caption, ["a reference of words"] * 5, history)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A page of three images, one of which has hostile words."""
    points = [Point(float(n), n / 10) for n in range(1, 9)]
    names = ("BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "CIDEr", "ROUGE-L", "mean length")
    examples = [example("a", "dog"), example("the", "cat", "sat"), example("a", MARKUP)]
    path = tmp_path / "validation.html"
    scores = dict.fromkeys(names, points)
    path.write_text(
        validation_page.html("run & co", "8 of 12", points, scores, examples, ("CIDEr", 8.0)),
        encoding="ascii",
    )
    return path


@pytest.fixture
def page(browser: Any, path: Path) -> Iterator[Any]:
    viewport = {"width": 1280, "height": 800}
    with opened_page(browser, path.as_uri(), viewport=viewport) as page:
        yield page


def test_keys_go_to_the_view_in_use(page: Any) -> None:
    views = page.locator(".example .attention-view")
    assert views.count() == 3
    views.nth(1).locator(".words button").nth(0).focus()
    page.keyboard.press("ArrowRight")
    words = [views.nth(number).get_attribute("data-word") for number in range(3)]
    assert words == ["", "1", ""]


def test_pointing_at_a_word_shows_its_map(page: Any) -> None:
    view = page.locator(".example").first
    maps = set()
    for place in range(2):
        view.locator(".words button").nth(place).hover()
        maps.add(view.locator("canvas").evaluate("canvas => canvas.toDataURL()"))
    assert len(maps) == 2


def test_markup_stays_text(page: Any) -> None:
    assert page.title() == "run & co"
    assert page.locator("img").count() == 6
    assert page.locator(".history .caption").last.inner_text() == f"a {MARKUP}"


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 768, 1280])
def test_it_fits_every_width_in_light_and_dark(
    browser: Any, path: Path, theme: Any, width: int
) -> None:
    viewport = {"width": width, "height": 640}
    with opened_page(browser, path.as_uri(), viewport=viewport, color_scheme=theme) as page:
        assert page.evaluate("document.documentElement.scrollWidth") == width
        red, *_ = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g)")
        assert (int(red) < 64) == (theme == "dark")
