"""The page that needs no server but that of its files, in a real browser."""

import base64
import random
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from captioning.captioner import Captioner, load
from captioning.data.preprocessing import Preprocessing
from captioning.data.tokenizer_names import TokenizerName
from captioning.data.tokenizers import ENGLISH_JOINTS, join_words
from captioning.data.vocabulary import Vocabulary
from captioning.models import Adapter, CNNEncoder, Model
from captioning.search import BeamSearch
from captioning.web.page import PHOTOS
from captioning.web.site import write_site
from tests.conftest import MadeOnce, Served, image_file, opened_page, unchecked
from tests.fixtures import DECODERS, decided

pytestmark = pytest.mark.integration

COLOURS = """canvas => {
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  return new Set(new Uint32Array(data.buffer)).size;
}"""

MOUNTED = """() => {
  const { mount } = attentionView;
  attentionView.mount = (element, data, options) => {
    window.texts = data.captions.map(({ caption }) => caption);
    window.named = data.captions[0].words.map(({ named }) => named);
    return mount(element, data, options);
  };
}"""

SEEN = """async ({ base64, size, fit }) => {
  const { seen } = await import(new URL("pixels.js", location));
  const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  const { pixels, crop } = await seen(new File([bytes], "photo.png"), { size, fit });
  return { pixels: [...pixels], crop };
}"""


@pytest.fixture(scope="module")
def captioner() -> Captioner:
    """The photo model, with a kind of photo in its chances, and ranks of two words."""
    captioner = load()
    assert captioner.calibration is not None
    named = (*captioner.calibration.named[:2], 5.0)
    captioner.calibration = replace(captioner.calibration, named=named)
    captioner.vocabulary = replace(captioner.vocabulary, ranks={"cat": 3, "dog": 9000})
    return captioner


@pytest.fixture(scope="module")
def site(package: Path, captioner: Captioner, made_once: MadeOnce) -> Path:
    def write(folder: Path) -> None:
        with unchecked():
            write_site(captioner, folder, "photos", package, examples=True)

    return made_once("site", write)


Opened = Callable[[Path], Any]


@pytest.fixture
def page(opened: Opened, site: Path) -> Any:
    """The page of the photo model."""
    return opened(site)


@pytest.fixture
def opened(browser: Any, served: Served) -> Iterator[Opened]:
    """Opens pages; a test fails if one fetches from elsewhere, sends anything, or has an error."""
    with ExitStack() as stack:

        def page_of(folder: Path) -> Any:
            address, viewport = served(folder), {"width": 360, "height": 700}
            allowed = (f"GET {address}", f"GET blob:{address}")
            page = stack.enter_context(opened_page(browser, address, allowed, viewport=viewport))
            page.set_default_timeout(60_000)
            return page

        yield page_of


def shown(page: Any, name: str) -> str:
    """The caption of a photo, once the page has it."""
    page.wait_for_selector(f"#status:text-is('{name}')")
    return str(page.get_attribute("#view img", "alt"))


def test_free_photos_get_the_words_and_chances_of_python(page: Any, captioner: Captioner) -> None:
    page.evaluate(MOUNTED)
    for name, path in PHOTOS.items():
        page.click(f"[data-photo='{name}']")
        expected = captioner(path)
        assert shown(page, name) == expected.text
        assert expected.confidence is not None
        found = float(str(page.text_content(".sure")).removesuffix("% sure"))
        assert found == pytest.approx(100 * expected.confidence, abs=1.0)
        assert page.evaluate("window.named") == pytest.approx(expected.named, abs=0.01)
        page.locator(".words button").first.focus()
        colours = page.locator("#view canvas").evaluate(COLOURS)
        assert colours > 50  # one on an empty canvas


def test_fifty_photos_get_the_words_of_python(
    page: Any, captioner: Captioner, shared_data: Path
) -> None:
    photos = sorted((shared_data / "coco-small" / "val2017").glob("*.jpg"))[:50]
    shown(page, "cat.jpg")
    page.set_input_files("#photo", [str(photo) for photo in photos])
    cards = page.locator("#photos button")
    cards.nth(49).wait_for()
    found = [str(text) for text in cards.all_text_contents()]
    expected = [caption.sentence for caption in captioner(photos)]
    assert sum(one != other for one, other in zip(found, expected, strict=True)) <= 1
    assert len(set(found)) > 25


@pytest.mark.parametrize("fit", ["crop", "pad", "squeeze"])
@pytest.mark.parametrize("size", [(301, 203), (70, 90), (70, 190), (128, 128), (299, 1)])
def test_the_browser_sees_photos_as_the_model_does(
    page: Any, fit: Any, size: tuple[int, int]
) -> None:
    photo = Image.effect_noise(size, 90).convert("RGB")
    data = base64.b64encode(image_file(photo)).decode()
    given = {"base64": data, "size": 100, "fit": fit}
    found = page.evaluate(SEEN, given)
    view = Preprocessing(100, fit)(photo)
    assert np.reshape(found["pixels"], (3, 100, 100)).tolist() == view.pixels.tolist()
    assert found["crop"] == pytest.approx(view.crop)


def test_hiding_a_part_of_the_photo_changes_what_is_said(page: Any) -> None:
    whole = shown(page, "cat.jpg")
    page.locator(".stage").scroll_into_view_if_needed()
    box = page.locator(".stage").bounding_box()
    page.mouse.move(box["x"] + 12, box["y"] + 12)  # its corners are round
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] - 12, box["y"] + 0.9 * box["height"], steps=4)
    page.mouse.up()
    page.wait_for_selector("#unhide")
    hidden = shown(page, "cat.jpg")
    assert hidden != whole
    assert re.sub(r"\s+", " ", str(page.text_content("#before"))).strip() == f"Before: {whole}"
    lost = page.locator("#before del").all_text_contents()
    new = page.locator(".words .new").all_text_contents()
    assert lost
    assert {word.lower() for word in [*lost, *new]} <= {*whole.split(), *hidden.split()}
    page.click("#unhide")
    page.wait_for_selector("#unhide", state="hidden")
    assert shown(page, "cat.jpg") == whole


def test_other_words_continue_the_caption_or_are_read(page: Any, captioner: Captioner) -> None:
    shown(page, "cat.jpg")
    page.evaluate("document.querySelector('#view .play').scrollIntoView()")
    page.locator(".words button").nth(1).click()
    other = page.locator(".details button").first
    expected = captioner(PHOTOS["cat.jpg"], captioner.constrained(f"a {other.inner_text()}"))
    other.click()
    page.wait_for_selector(f"#view img[alt='{expected.text}']")
    page.get_by_label("Your own words").fill("A cat on a sofa.")
    page.keyboard.press("Enter")
    page.wait_for_selector("#view img[alt='a cat on a sofa']")
    read = captioner.read(PHOTOS["cat.jpg"], "a cat on a sofa")
    score = str(page.locator(".captions .score").last.text_content()).replace("\u2212", "-")
    assert float(score) == pytest.approx(read.score, abs=0.1)
    for place, probability in enumerate(read.probabilities):
        page.locator(".words button").nth(place).click()
        found = str(page.locator(".details .probability").first.text_content()).strip("<%")
        assert float(found) == pytest.approx(100 * probability, rel=0.1, abs=1)
    page.get_by_label("Your own words").fill("a cat on a spaceship")
    page.keyboard.press("Enter")
    page.wait_for_selector("#error:has-text('does not know \u201cspaceship\u201d')")


@pytest.mark.parametrize("repeats", [True, False])
@pytest.mark.parametrize("name", DECODERS)
def test_every_decoder_finds_the_same_captions(
    name: str,
    repeats: bool,
    opened: Opened,
    package: Path,
    vocabulary: Vocabulary,
    tmp_path: Path,
) -> None:
    torch.manual_seed(1)
    encoder = CNNEncoder("small", weights=None)
    adapter = Adapter(encoder.annotation_dim, projection_dim=5, normalise=True)
    decoder = decided(DECODERS[name](5, len(vocabulary))).float()
    limits: dict[str, Any] = {"max_length": 9, "min_length": 3, "no_repeat_ngram": 2}
    search = BeamSearch(3, length_penalty=0.5, repeats=repeats, **limits)
    vocabulary = Vocabulary(
        vocabulary.words, repeatable=vocabulary.words[:2], immediate_repeats=vocabulary.words[1:2]
    )
    model = Model(encoder, adapter, decoder).eval()
    captioner = Captioner(model, vocabulary, Preprocessing(32), search)
    photo = Image.effect_noise((40, 50), 90).convert("RGB")
    photo.save(tmp_path / "photo.png")
    best = captioner(photo, most=None)
    with unchecked():
        write_site(captioner, tmp_path / "site", name, package)
    page = opened(tmp_path / "site")
    page.evaluate(MOUNTED)
    page.evaluate("document.querySelector('[name=captions]').value = 3")
    page.set_input_files("#photo", str(tmp_path / "photo.png"))
    shown(page, "photo.png")
    texts = page.evaluate("window.texts")
    assert texts == [caption.text for caption in (best, *best.others)]
    assert len(set(texts)) == 3


def test_captions_have_spaces_where_python_writes_them(page: Any) -> None:
    letters = r"\u30ab\u30fc \u72ac \U00020bb7 e\u0301 b \u0e2b\u0e21\u0e32 \u1019 3 \uff70 \u3006"
    words = [*letters.encode().decode("unicode_escape").split(), "<b>", "'s", "N'T", "n't-x"]
    drawn = random.Random(0)
    lists = [[drawn.choice(words) for _ in range(drawn.randint(1, 6))] for _ in range(2000)]
    write = "const { joined } = await import(new URL('captions.js', location))"
    names: list[TokenizerName] = ["characters", "ptb"]
    joints = {**ENGLISH_JOINTS, "b 3": "'", "3 ": "-", " b": ""}
    for name in names:
        found = page.evaluate(
            f"async ([lists, joints]) => {{ {write}; "
            f"return lists.map((each) => joined(each, '{name}', joints)) }}",
            [lists, joints],
        )
        assert found == [join_words(words, name, joints) for words in lists]
        assert len({text.count(" ") for text in found}) > 3


def test_a_page_that_is_opened_as_a_file_says_what_to_do(browser: Any, site: Path) -> None:
    page = browser.new_page()
    page.goto((site / "index.html").as_uri())
    assert "python -m http.server" in str(page.text_content("#error"))
    page.close()
