"""Reviews of captions by the server."""

from typing import Any

import pytest
from PIL import Image

from captioning.captioner import load
from captioning.serving import Limits, Protection, application
from captioning.web.page import PHOTOS
from tests.conftest import opened_page
from tests.serving.conftest import Ask, assert_refused, served

CAT = PHOTOS["cat.jpg"]
TEXT = "a dog beside a zeppelin"


def test_a_caption_is_reviewed_as_the_captioner_reviews_it(ask: Ask) -> None:
    captioner = load()
    client, photo = ask(captioner=captioner), ("cat.jpg", CAT.read_bytes())
    expected = captioner.review(Image.open(CAT), TEXT)
    for form in ({"text": TEXT}, {"text": TEXT, "view": "true"}):
        answer = client.post("/review", files={"photo": photo}, data=form).json()
        assert answer["belongs"] == pytest.approx(expected.belongs, rel=1e-2)
        assert answer["unknown"] == ["zeppelin"]
        assert [word["word"] for word in answer["words"] if "instead" in word] == ["dog"]
        assert list(expected.alternatives[0]) == answer["words"][1]["instead"]
    [caption] = answer["view"]["captions"]
    assert caption["caption"] == TEXT
    assert caption["review"] == {key: answer[key] for key in caption["review"]}
    files = [("photo", photo), ("photo", ("notes.txt", b"no photo"))]
    first, second = client.post("/review", files=files, data={"text": TEXT}).json()["photos"]
    assert first["unknown"] == ["zeppelin"]
    assert second["error"].startswith("notes.txt: not an image")


def test_a_review_needs_a_text_and_a_calibration(ask: Ask, photo: bytes) -> None:
    client, calibrated = ask(), ask(captioner=load())
    for asked, form, sentence in (
        (client, {"text": "a circle"}, "this model is not calibrated for reviews"),
        (calibrated, {}, "text: Field required"),
        (calibrated, {"text": " "}, "text: has no words"),
        (calibrated, {"text": "a" * 201}, "text: String should have at most 200 characters"),
        (calibrated, {"text": "tv " * 41}, "text: 41 words; send at most 40"),
        (calibrated, {"text": "a dog", "beam": "3"}, "beam: Extra inputs are not permitted"),
    ):
        answer = asked.post("/review", files={"photo": photo}, data=form)
        assert_refused(answer, 422, sentence)


@pytest.mark.integration
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_the_page_reviews_words_of_the_visitor(browser: Any, scheme: str, width: int) -> None:
    limits = Limits()
    app = Protection(application(load(), "photos", 16, limits), limits)
    options = {"viewport": {"width": width, "height": 800}, "color_scheme": scheme}
    with served(app, limits) as address:
        allowed = (f"GET {address}", f"POST {address}/caption", f"POST {address}/review")
        with opened_page(browser, address, allowed, **options) as page:
            page.set_input_files("#photo", str(CAT))
            page.wait_for_selector("canvas")
            assert not page.locator(".notes").is_visible()
            page.get_by_label("Your own words").fill(TEXT)
            page.keyboard.press("Enter")
            page.wait_for_selector(f"#view img[alt='{TEXT}']")
            belongs, doubtful, unknown = page.locator(".notes li").all_inner_texts()
            assert belongs.startswith("The chance that the caption belongs to this photo is ")
            assert doubtful.startswith("Doubtful: dog, ")
            assert unknown == "Not judged, since the model does not know them: zeppelin."
            assert page.locator(".words .doubtful").all_inner_texts() == ["dog"]
            page.locator(".words button").last.click()
            assert "does not know \u201czeppelin\u201d" in page.locator(".details").inner_text()
