"""What a page does in a real browser, opened from disk."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from captioning.captioner.caption import Caption
from captioning.viewing.html_document import save_html
from captioning.viewing.viewer import data, page_html, viewer_html
from tests.conftest import opened_page
from tests.viewing.conftest import SIZE, caption

pytestmark = pytest.mark.integration

MARKUP = "<img src=x onerror=document.title='run'>"
WORDS = ("a", "small", "dog", MARKUP)
PHONE = {"width": 360, "height": 640}


@contextmanager
def opened(
    browser: Any, folder: Path, *captions: Caption, title: str = "", **options: Any
) -> Iterator[Any]:
    """The page of these captions; a test fails if it complains or asks for anything."""
    views = [each.view() for each in captions]
    save_html(viewer_html(Image.new("RGB", SIZE, "grey"), views, title), folder / "<b>a & b.html")
    with opened_page(browser, (folder / "<b>a & b.html").as_uri(), **options) as page:
        yield page


@pytest.fixture
def page(browser: Any, tmp_path: Path) -> Iterator[Any]:
    """The view of two captions."""
    captions, viewport = (caption(*WORDS), caption("the", "cat")), {"width": 1000, "height": 700}
    with opened(browser, tmp_path, *captions, title="<b>dog & co", viewport=viewport) as page:
        yield page


def pixels(page: Any) -> str:
    """The map on the canvas."""
    return page.locator("canvas").evaluate("canvas => canvas.toDataURL()")


def picture(page: Any) -> np.ndarray:
    """The photo with what is laid over it, as it is on the screen."""
    with Image.open(io.BytesIO(page.locator(".stage").screenshot())) as shot:
        return np.asarray(shot.convert("RGB"), dtype=float)


def word(page: Any, place: int) -> Any:
    return page.locator(".words button").nth(place)


def chosen(page: Any) -> str:
    """The place of the word that is shown."""
    return page.locator(".attention-view").get_attribute("data-word")


def opacity(page: Any, value: int) -> None:
    """Set how much of the map is seen."""
    page.locator(".attention-view details").evaluate("details => { details.open = true; }")
    page.get_by_label("Opacity").fill(str(value))


def test_a_first_look_is_the_photo_and_a_map_has_its_name(page: Any) -> None:
    name = page.locator("figcaption")
    assert (picture(page)[20:-20, 20:-20] == 128).all()
    assert not name.is_visible()
    word(page, 0).focus()
    assert name.inner_text() == "Attention"
    assert name.is_visible()
    assert picture(page).std() > 10
    page.keyboard.press("Escape")
    assert (picture(page)[20:-20, 20:-20] == 128).all()


def test_confidence_says_what_was_measured(browser: Any, tmp_path: Path) -> None:
    with opened(browser, tmp_path, caption("a", "dog", confidence=0.19)) as page:
        details = page.locator("[aria-live]")
        page.get_by_role("button", name="19% sure").focus()
        assert details.inner_text().startswith("Of captions with this confidence, about 19% were")
        word(page, 1).hover()
        told = "The model gives \u201cdog\u201d a probability of 60% here."
        assert told in details.inner_text()
        page.mouse.move(1, 1)
        assert details.inner_text().startswith("Of captions")


def test_lines_are_probabilities_and_one_sentence_tells_the_rest(
    browser: Any, tmp_path: Path
) -> None:
    with opened(browser, tmp_path, caption("a", "dog", named=(None, 0.71))) as page:
        lines = page.locator(".words .bar").evaluate_all(
            "words => words.map((word) => Number(word.style.getPropertyValue('--share')))"
        )
        assert lines == [0.5, 0.6]
        assert page.locator(".hint").inner_text().endswith("the line below it is its probability.")
        told = []
        for place in range(2):
            word(page, place).click()
            told.append(page.locator(".hint").inner_text())
        assert told == [
            "The model gives \u201ca\u201d a probability of 50% here.",
            "The model gives \u201cdog\u201d a probability of 60% here; people name it too in "
            "about 71% of such cases.",
        ]


def test_candidates_differ_in_content_words(browser: Any, tmp_path: Path) -> None:
    texts = "a dog", "the dog", "a cat", "a dog on a cat"
    with opened(browser, tmp_path, *(caption(*each.split()) for each in texts)) as page:
        assert page.locator(".captions [dir]").all_inner_texts() == ["a dog", "a cat"]


def test_a_runner_up_continues_by_a_stored_caption(browser: Any, tmp_path: Path) -> None:
    texts = "a dog", "a cat", "a cat runs"
    with opened(browser, tmp_path, *(caption(*each.split()) for each in texts)) as page:
        word(page, 0).click()
        assert page.locator(".details button").count() == 0  # nothing begins with "cat"
        words = page.locator("[aria-live] li").all_inner_texts()
        assert words == ["a 50%", "cat 25%", "end of caption 2.0%"]
        word(page, 1).hover()
        page.mouse.move(1, 1)
        word(page, 1).focus()
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        assert page.locator(".words").inner_text() == "A cat."
        assert chosen(page) == "1"
        assert page.get_by_role("radio", name="a cat", exact=False).first.is_checked()
        page.get_by_label("a cat runs").check()
        word(page, 2).click()
        page.get_by_role("button", name="end of caption").click()
        assert page.locator(".words").inner_text() == "A cat."


def test_the_caption_is_a_sentence_that_can_be_copied(page: Any) -> None:
    sentence = f"A small dog {MARKUP}"
    assert page.locator(".words").inner_text() == sentence
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy").click()
    page.get_by_role("button", name="Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == sentence
    page.get_by_text("the cat").click()
    assert page.locator(".words").inner_text() == "The cat."


def test_the_brightest_place_is_the_region_of_the_largest_weight(page: Any) -> None:
    word(page, 0).focus()
    opacity(page, 0)
    plain = picture(page)
    opacity(page, 80)
    for place in range(3):
        word(page, place).hover()
        light = (picture(page) - plain).mean(2)
        height, width = light.shape
        y, x = np.nonzero(light > 0.95 * light.max())
        across = (x.mean() / width * 90 - 15) / 60  # of the central square of a photo of 90 x 60
        assert place / 4 < across < (place + 1) / 4
        assert 0 < y.mean() / height < 1 / 4


def test_a_key_goes_to_the_next_photo_and_to_the_gallery(browser: Any, tmp_path: Path) -> None:
    view = data(Image.new("RGB", SIZE, "grey"), [caption("a", "dog").view()])
    (tmp_path / "more").mkdir()
    for name, links in {
        "1.html": {"All photos": "index.html", "Previous": "", "Next": "more/2.html"},
        "more/2.html": {"All photos": "../index.html", "Previous": "../1.html", "Next": ""},
        "index.html": {"Of no photo": "1.html"},
    }.items():
        save_html(page_html(view, links), tmp_path / name)
    with opened_page(browser, (tmp_path / "1.html").as_uri(), ("GET file:",)) as page:
        for key, name in {"p": "1", "n": "2", "N": "2", "a": "index"}.items():
            page.keyboard.press(key)
            page.wait_for_url(f"**/{name}.html")
        assert page.locator(".others a").get_attribute("title") == "Key: o"


def test_keys_go_from_word_to_word(page: Any) -> None:
    keys = ["ArrowRight", "ArrowRight", "ArrowLeft", "End", "ArrowRight", "Home", "Tab", "Escape"]
    found = []
    for key in keys:
        page.keyboard.press(key)
        found.append(chosen(page))
    assert found == ["0", "1", "0", "3", "3", "0", "1", ""]


def test_the_space_bar_plays_and_pauses(page: Any) -> None:
    page.clock.install(time=0)
    page.clock.pause_at(60_000)  # else it runs on by itself, past words on a busy machine
    first = page.locator(".play").inner_text()
    page.keyboard.press(" ")
    seen, maps = [], set()
    for _ in WORDS:
        seen.append(chosen(page))
        maps.add(pixels(page))
        page.clock.run_for(1100)
    assert seen == ["0", "1", "2", "3"]
    assert len(maps) == 4
    assert page.locator(".play").inner_text() == first  # it has come to the end
    page.keyboard.press(" ")
    page.clock.run_for(1100)
    page.keyboard.press(" ")
    page.clock.run_for(5000)
    assert chosen(page) == "1"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_phone_shows_it_and_answers_taps(browser: Any, tmp_path: Path, theme: Any) -> None:
    long = caption("Donaudampfschifffahrtsgesellschaft" * 2, "dog")
    options = {"viewport": PHONE, "has_touch": True, "color_scheme": theme}
    with opened(browser, tmp_path, long, title="name" * 40, **options) as page:
        word(page, 1).tap()
        assert chosen(page) == "1"


def test_on_a_phone_play_stays_below_the_caption(browser: Any, tmp_path: Path) -> None:
    options = {"viewport": PHONE, "has_touch": True, "is_mobile": True}
    with opened(browser, tmp_path, caption("a", "dog", confidence=0.2), **options) as page:
        places = []
        for place in (None, 1):
            if place is not None:
                word(page, place).tap()
            play, text = (page.locator(name).bounding_box() for name in (".play", ".caption"))
            places.append(play["y"])
            assert 0 <= play["y"] - text["y"] - text["height"] < 20
        assert places[0] == places[1]
        page.keyboard.press("Escape")
        parts = [page.locator(name).bounding_box() for name in (".hint", ".attention-view summary")]
        assert parts[1]["y"] - parts[0]["y"] - parts[0]["height"] < 20  # no hole


@pytest.fixture
def maps_page(browser: Any, tmp_path: Path) -> Iterator[Any]:
    """The view of a transformer's caption with its maps and heads, on a phone."""
    shown = caption(*WORDS, shown_maps=tuple(caption().maps))
    options = {"allowed": ("GET file:",), "viewport": PHONE, "color_scheme": "dark"}
    with opened(browser, tmp_path, shown, **options) as page:
        page.locator(".attention-view details").evaluate("details => { details.open = true; }")
        yield page


def brightest(page: Any, pane: int) -> float:
    """Where on a pane's canvas the map is the brightest, from its left edge, as a share of it."""
    script = """canvas => {
      const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
      const light = data.filter((_, i) => i % 4 === 0);
      return (light.indexOf(Math.max(...light)) % canvas.width + 0.5) / canvas.width;
    }"""
    return page.locator("canvas").nth(pane).evaluate(script)


def test_a_map_is_chosen_and_named_by_keyboard_alone(maps_page: Any) -> None:
    maps_page.keyboard.press("ArrowRight")
    assert brightest(maps_page, 0) < 0.5
    maps_page.get_by_role("combobox", name="Map").focus()
    maps_page.keyboard.press("ArrowDown")
    assert chosen(maps_page) == "0"  # the word stays
    assert brightest(maps_page, 0) > 0.5
    assert maps_page.locator("figcaption").all_inner_texts() == ["Occlusion"]
    assert "Occlusion per region" in maps_page.locator(".legend .note").inner_text()
    assert "6.3%" in maps_page.locator(".legend .note").inner_text()


def test_two_maps_stand_side_by_side_on_a_phone(maps_page: Any) -> None:
    assert maps_page.locator("canvas").count() == 1
    maps_page.get_by_role("combobox", name="Beside it").focus()
    maps_page.keyboard.press("ArrowDown")
    maps_page.keyboard.press("ArrowDown")
    maps_page.keyboard.press("Shift+Tab")  # leaves the choice, where keys are the words' again
    word(maps_page, 0).focus()
    assert maps_page.locator("figcaption").all_inner_texts() == ["Attention", "Occlusion"]
    left, right = (maps_page.locator(".stage").nth(pane).bounding_box() for pane in (0, 1))
    assert left["y"] == right["y"]
    assert left["x"] + left["width"] < right["x"]
    assert brightest(maps_page, 0) < 0.5 < brightest(maps_page, 1)
    maps_page.get_by_role("combobox", name="Beside it").select_option("nothing")
    assert maps_page.locator("canvas").count() == 1
