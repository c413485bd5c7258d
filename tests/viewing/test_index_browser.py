"""What the index of photos does in a real browser, opened from disk."""

from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from captioning.data.framing import jpeg
from captioning.viewing.html_document import save_html
from captioning.viewing.viewer import PhotoCard, index_html
from tests.conftest import opened_page

pytestmark = pytest.mark.integration

SENTENCES = {
    "dog10.jpg": ("A dog runs along a beach.", 0.3),
    "dog9.jpg": ("Two Dogs.", 0.9),
    "stand.jpg": ("A hotdog stand on a long beach, and more words than fit in one line.", 0.5),
    "straße.jpg": ("一只狗在海滩上", None),
}


@pytest.fixture
def page(browser: Any, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Any]:
    """The index in a window of 800 pixels, or as wide as a test asks for."""
    thumbnail = jpeg(Image.new("RGB", (60, 90), "grey"), 90)
    cards = [
        PhotoCard(name, thumbnail, text, [name], value, f"{name}.html")
        for name, (text, value) in SENTENCES.items()
    ]
    path, width = tmp_path / "index.html", getattr(request, "param", 800)
    save_html(index_html(cards), path)
    with opened_page(browser, path.as_uri(), viewport={"width": width, "height": 800}) as page:
        yield page


def shown(page: Any) -> list[str]:
    """The names of the photos, in their order."""
    return page.locator("li:visible small").all_inner_texts()


def test_photos_are_sorted_by_confidence_and_by_name(page: Any) -> None:
    surest = ["dog9.jpg", "stand.jpg", "dog10.jpg", "straße.jpg"]
    assert shown(page) == surest
    page.get_by_label("Sort by").select_option("least sure first")
    assert shown(page) == surest[::-1]
    page.get_by_label("Sort by").select_option("name")
    assert shown(page) == ["dog9.jpg", "dog10.jpg", "stand.jpg", "straße.jpg"]


@pytest.mark.parametrize(
    ("typed", "names"),
    [
        ("dog", ["dog9.jpg", "dog10.jpg"]),  # a hotdog is none
        (" beach, DOG ", ["dog10.jpg"]),
        ("海滩", ["straße.jpg"]),
        ("stras", []),
    ],
)
def test_a_search_is_for_words_by_their_beginning(page: Any, typed: str, names: list[str]) -> None:
    page.keyboard.press("Tab")
    page.keyboard.type(typed)
    assert shown(page) == names
    assert page.locator("output").inner_text() == f"{len(names)} of 4 photos"
    page.get_by_label("Search").fill("")
    assert (len(shown(page)), page.locator("output").inner_text()) == (4, "")


@pytest.mark.parametrize("page", [390, 800, 1400], indirect=True)
def test_cards_keep_apart_at_every_width(page: Any) -> None:
    boxes = [card.bounding_box() for card in page.locator("li a").all()]
    for one, other in combinations(boxes, 2):
        beside = other["x"] - one["x"] - one["width"]
        below = other["y"] - one["y"] - one["height"]
        assert max(beside, below) > 12  # a gap of 16


def test_a_phone_shows_the_whole_name_of_an_order(browser: Any, tmp_path: Path) -> None:
    cards, path = [PhotoCard("dog.jpg", "data:,", "A dog.", value=0.1)], tmp_path / "index.html"
    save_html(index_html(cards, orders={"lowest": "lowest CIDEr first"}), path)
    with opened_page(browser, path.as_uri(), viewport={"width": 390, "height": 844}) as page:
        box = page.get_by_label("Sort by")
        width = box.bounding_box()["width"]
        box.evaluate("box => { box.style.width = 'max-content'; }")
        assert width >= box.bounding_box()["width"]
