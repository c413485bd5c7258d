"""The page in a real browser."""

import base64
import io
import itertools
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image

from tests.conftest import opened_page

pytestmark = pytest.mark.integration

MARKUP = "<img src=x onerror=document.title='run'>.png"


@pytest.fixture
def page(browser: Any, server: httpx.Client) -> Iterator[Any]:
    """The page on a phone; a test fails if it fetches from elsewhere or its scripts fail."""
    address = str(server.base_url)
    options = {"viewport": {"width": 360, "height": 700}, "color_scheme": "dark"}
    allowed = (f"GET {address}", f"POST {address}/caption")
    with opened_page(browser, address, allowed, **options) as page:
        yield page


@pytest.fixture
def shown(page: Any, photo: bytes) -> Any:
    """The page that shows a photo."""
    choose(page, ("photo.png", photo))
    page.wait_for_selector("canvas")
    return page


def choose(page: Any, *files: tuple[str, bytes]) -> None:
    """Pick files, by their names and contents."""
    picked = [{"name": name, "mimeType": "image/png", "buffer": data} for name, data in files]
    page.set_input_files("#photo", picked)


def transfer(page: Any, event: str, content: list[int] | int) -> None:
    """Bring a file by an event; one of zeros where content is its size."""
    page.evaluate(
        f"""content => {{
          const file = new File([new Uint8Array(content)], "photo.png", {{ type: "image/png" }});
          const dataTransfer = new DataTransfer();
          dataTransfer.items.add(file);
          document.body.dispatchEvent({event});
        }}""",
        content,
    )


def error(page: Any) -> str:
    """The error that the page shows, which it waits for."""
    page.wait_for_selector("#error:not(:empty)")
    return str(page.text_content("#error"))


def test_a_picked_photo_gets_its_caption_and_maps(
    shown: Any, server: httpx.Client, photo: bytes
) -> None:
    [found] = server.post("/caption", files={"photo": photo}).json()["captions"]
    assert shown.get_attribute("#view img", "alt") == found["caption"]
    shown.locator(".words button").first.focus()
    map_of_word = shown.locator("canvas").evaluate("canvas => canvas.toDataURL()")
    shown.locator("canvas").evaluate("canvas => { canvas.width += 0; }")  # which empties it
    assert shown.locator("canvas").evaluate("canvas => canvas.toDataURL()") != map_of_word
    assert shown.text_content("#status") == "photo.png"


def test_several_photos_are_listed_and_each_can_be_shown(page: Any, photo: bytes) -> None:
    choose(page, ("one.png", photo), ("notes.txt", b"no photo"), ("two.png", photo))
    assert error(page).startswith("notes.txt: not an image")
    cards = page.locator("#photos button")
    assert [card.get_attribute("aria-pressed") for card in cards.all()] == ["true", "false"]
    assert page.text_content("#status") == "one.png"
    cards.nth(1).click()
    assert page.text_content("#status") == "two.png"
    assert cards.nth(1).inner_text() == page.locator(".words").inner_text()


def test_a_changed_setting_captions_the_photo_again(shown: Any) -> None:
    assert not shown.is_visible("[name=captions]")  # technical terms are folded away
    shown.get_by_text("Search and maps").click()
    with shown.expect_response("**/caption") as answer:
        shown.fill("[name=captions]", "5")
        shown.keyboard.press("Tab")
    assert len(answer.value.json()["view"]["captions"]) == 5
    assert shown.input_value("[name=beam]") == "5"
    shown.locator("[value=sample]").check(force=True)
    assert shown.is_visible("[name=temperature]")
    assert not shown.is_visible("[name=beam]")


def test_other_words_continue_the_caption_or_are_read(shown: Any) -> None:
    shown.locator(".words button").first.click()
    other = shown.locator(".details button").first.inner_text()
    with shown.expect_response("**/caption"):
        shown.locator(".details button").first.click()
    shown.wait_for_selector("body:not(.busy)")
    assert shown.locator(".words button").first.inner_text().lower() == other
    shown.get_by_label("Your own words").fill("A red circle.")
    shown.keyboard.press("Enter")
    shown.wait_for_selector("#view img[alt='a red circle']")
    shown.locator(".words button").nth(1).click()
    assert "gives \u201cred\u201d a probability of" in shown.locator(".details").inner_text()
    assert shown.locator(".captions label").count() == 3
    shown.get_by_label("Your own words").fill("red zebras")
    shown.keyboard.press("Enter")
    assert "does not know 'zebras'" in error(shown)


def test_two_maps_are_shown_side_by_side_and_named(shown: Any) -> None:
    assert "Attention \u00d7 evidence per region" in shown.text_content(".legend .note")
    shown.locator(".words button").first.focus()
    shown.get_by_text("Search and maps").click()
    shown.locator(".words button").first.focus()
    shown.get_by_role("combobox", name="Map", exact=True).select_option("Grad-CAM")
    shown.wait_for_selector(".legend .note:has-text('Grad-CAM per region')", state="attached")
    assert shown.get_attribute(".attention-view", "data-word") == "0"  # still the same word
    shown.get_by_role("combobox", name="Beside it").select_option("occlusion")
    shown.wait_for_selector(".compared figure:nth-child(2) canvas")
    assert shown.locator("figcaption").all_inner_texts() == ["Grad-CAM", "Occlusion"]
    maps = shown.locator("canvas").evaluate_all("all => all.map((each) => each.toDataURL())")
    assert len(set(maps)) == 2
    assert shown.locator("#view select").count() == 0  # the page has them already


DROP = "new DragEvent('drop', { dataTransfer, bubbles: true })"
PASTE = "new ClipboardEvent('paste', { clipboardData: dataTransfer, bubbles: true })"


@pytest.mark.parametrize("event", [DROP, PASTE])
def test_a_photo_may_be_dropped_or_pasted(page: Any, photo: bytes, event: str) -> None:
    transfer(page, event, list(photo))
    page.wait_for_selector("canvas")


def test_a_file_over_the_limit_is_not_sent(page: Any) -> None:
    page.route("**/caption", lambda route: pytest.fail("it was sent"))
    transfer(page, DROP, 20_100_000)
    assert error(page).startswith("photo.png: 20.1 MB are more than the 20.0 MB that are read")


def test_markup_in_a_name_stays_text_and_errors_go_again(page: Any, photo: bytes) -> None:
    choose(page, (MARKUP, photo))
    page.wait_for_selector("canvas")
    assert page.text_content("#status") == MARKUP
    choose(page, (MARKUP, b"no photo"))
    assert error(page).startswith(f"{MARKUP}: not an image")
    assert page.title() == "captioning"
    choose(page, ("photo.png", photo))
    page.wait_for_selector("canvas")
    assert page.text_content("#error") == ""


def test_a_part_that_is_hidden_is_sent_grey(shown: Any) -> None:
    with shown.expect_response("**/caption") as answer:
        shown.locator(".words button").first.focus()
        shown.locator("#hide").click()
    shown.wait_for_selector("#unhide")
    assert shown.text_content("#before")
    source = str(shown.get_attribute("#view img", "src"))
    assert source == answer.value.json()["view"]["photo"]
    image = Image.open(io.BytesIO(base64.b64decode(source.partition(",")[2])))
    grey = np.abs(np.asarray(image).astype(int) - 128).max(axis=2) < 4
    assert 0.01 < grey.mean() < 0.99
    shown.get_by_text("Search and maps").click()
    number = itertools.count()  # with other settings the whole photo is captioned first
    with shown.expect_response(lambda it: it.url.endswith("/caption") and next(number) == 1):
        shown.fill("[name=captions]", "2")
        shown.locator("[name=captions]").blur()
    shown.wait_for_selector("body:not(.busy)")
    assert shown.is_visible("#unhide")
    assert shown.get_attribute("#view img", "src") == source
    shown.click("#unhide")
    shown.wait_for_selector("#unhide", state="hidden")
    assert shown.text_content("#before") == ""
