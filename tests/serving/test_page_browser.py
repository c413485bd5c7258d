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
from tests.serving.conftest import Serve

pytestmark = pytest.mark.integration

MARKUP = "<img src=x onerror=document.title='run'>.png"


@pytest.fixture
def client(serve: Serve) -> httpx.Client:
    return serve()


@pytest.fixture
def page(browser: Any, client: httpx.Client) -> Iterator[Any]:
    """The page on a phone; a test fails if it fetches from elsewhere or its scripts fail."""
    address = str(client.base_url)
    options = {"viewport": {"width": 360, "height": 700}, "color_scheme": "dark"}
    with opened_page(browser, address, (address,), **options) as page:
        yield page


def choose(page: Any, name: str, content: bytes) -> None:
    """Pick a file."""
    kind = "application/octet-stream"
    page.set_input_files("#photo", {"name": name, "mimeType": kind, "buffer": content})


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
    page: Any, client: httpx.Client, photo: bytes
) -> None:
    choose(page, "photo.png", photo)
    page.wait_for_selector("canvas")
    [found] = client.post("/caption", files={"photo": photo}).json()["captions"]
    assert page.get_attribute("#view img", "alt") == found["caption"]
    page.locator(".words button").first.focus()
    map_of_word = page.locator("canvas").evaluate("canvas => canvas.toDataURL()")
    page.locator("canvas").evaluate("canvas => { canvas.width += 0; }")  # which empties it
    assert page.locator("canvas").evaluate("canvas => canvas.toDataURL()") != map_of_word
    assert page.text_content("#status") == "photo.png"
    assert page.evaluate("document.documentElement.scrollWidth") == 360


def test_several_photos_are_listed_and_each_can_be_shown(page: Any, photo: bytes) -> None:
    contents = {"one.png": photo, "notes.txt": b"no photo", "two.png": photo}
    page.set_input_files(
        "#photo",
        [
            {"name": name, "mimeType": "image/png", "buffer": content}
            for name, content in contents.items()
        ],
    )
    assert error(page).startswith("notes.txt: not an image")
    cards = page.locator("#photos button")
    assert [card.get_attribute("aria-pressed") for card in cards.all()] == ["true", "false"]
    assert page.text_content("#status") == "one.png"
    cards.nth(1).click()
    assert page.text_content("#status") == "two.png"
    assert cards.nth(1).inner_text() == page.locator(".words").inner_text()
    assert page.evaluate("document.documentElement.scrollWidth") == 360


def test_a_changed_setting_captions_the_photo_again(page: Any, photo: bytes) -> None:
    choose(page, "photo.png", photo)
    page.wait_for_selector("canvas")
    assert not page.is_visible("[name=captions]")  # technical terms are folded away
    page.get_by_text("Search and maps").click()
    with page.expect_response("**/caption") as answer:
        page.fill("[name=captions]", "5")
        page.keyboard.press("Tab")
    assert len(answer.value.json()["view"]["captions"]) == 5
    assert page.input_value("[name=beam]") == "5"
    page.locator("[value=sample]").check(force=True)
    assert page.is_visible("[name=temperature]")
    assert not page.is_visible("[name=beam]")


def test_other_words_continue_the_caption_or_are_read(page: Any, photo: bytes) -> None:
    choose(page, "photo.png", photo)
    page.locator(".words button").first.click()
    other = page.locator(".details button").first.inner_text()
    with page.expect_response("**/caption"):
        page.locator(".details button").first.click()
    page.wait_for_selector("body:not(.busy)")
    assert page.locator(".words button").first.inner_text().lower() == other
    page.get_by_label("Your own words").fill("A red circle.")
    page.keyboard.press("Enter")
    page.wait_for_selector("#view img[alt='a red circle']")
    page.locator(".words button").nth(1).click()
    assert "%: probability of \u201cred\u201d" in page.locator(".details").inner_text()
    assert page.locator(".captions label").count() == 3
    page.get_by_label("Your own words").fill("red zebras")
    page.keyboard.press("Enter")
    assert "does not know 'zebras'" in error(page)


def test_two_maps_are_shown_side_by_side_and_named(page: Any, photo: bytes) -> None:
    choose(page, "photo.png", photo)
    page.wait_for_selector("canvas")
    assert "Attention \u00d7 evidence per region" in page.text_content(".legend .note")
    page.locator(".words button").first.focus()
    page.get_by_text("Search and maps").click()
    page.locator(".words button").first.focus()
    page.get_by_role("combobox", name="Map", exact=True).select_option("Grad-CAM")
    page.wait_for_selector(".legend .note:has-text('Grad-CAM per region')", state="attached")
    assert page.get_attribute(".attention-view", "data-word") == "0"  # still the same word
    page.get_by_role("combobox", name="Beside it").select_option("occlusion")
    page.wait_for_selector(".compared figure:nth-child(2) canvas")
    assert page.locator("figcaption").all_inner_texts() == ["Grad-CAM", "Occlusion"]
    maps = page.locator("canvas").evaluate_all("all => all.map((each) => each.toDataURL())")
    assert len(set(maps)) == 2
    assert page.locator("#view select").count() == 0  # the page has them already
    assert page.evaluate("document.documentElement.scrollWidth") == 360


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
    choose(page, MARKUP, photo)
    page.wait_for_selector("canvas")
    assert page.text_content("#status") == MARKUP
    choose(page, MARKUP, b"no photo")
    assert error(page).startswith(f"{MARKUP}: not an image")
    assert page.title() == "captioning"
    choose(page, "photo.png", photo)
    page.wait_for_selector("canvas")
    assert page.text_content("#error") == ""


def test_a_part_that_is_hidden_is_sent_grey(page: Any, photo: bytes) -> None:
    choose(page, "photo.png", photo)
    page.wait_for_selector("canvas")
    with page.expect_response("**/caption") as answer:
        page.locator(".words button").first.focus()
        page.locator("#hide").click()
    page.wait_for_selector("#unhide")
    assert page.text_content("#before")
    shown = str(page.get_attribute("#view img", "src"))
    assert shown == answer.value.json()["view"]["photo"]
    image = Image.open(io.BytesIO(base64.b64decode(shown.partition(",")[2])))
    grey = np.abs(np.asarray(image).astype(int) - 128).max(axis=2) < 4
    assert 0.01 < grey.mean() < 0.99
    page.get_by_text("Search and maps").click()
    number = itertools.count()  # with other settings the whole photo is captioned first
    with page.expect_response(lambda it: it.url.endswith("/caption") and next(number) == 1):
        page.fill("[name=captions]", "2")
        page.locator("[name=captions]").blur()
    page.wait_for_selector("body:not(.busy)")
    assert page.is_visible("#unhide")
    assert page.get_attribute("#view img", "src") == shown
    page.click("#unhide")
    page.wait_for_selector("#unhide", state="hidden")
    assert page.text_content("#before") == ""
