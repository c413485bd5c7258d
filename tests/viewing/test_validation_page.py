import base64
import io
import math
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from captioning.viewing.html_document import save_html
from captioning.viewing.validation_page import (
    PastCaption,
    Point,
    TrackedImage,
    curve,
    validation_html,
)
from tests.conftest import opened_page
from tests.viewing.conftest import SIZE, caption

MARKUP = "</script><script>document.title='run'</script><img src=x onerror=alert(1)>"
SCORES = {
    "BLEU-1": [Point(1.0, 0.5), Point(2.0, 0.6)],
    "CIDEr": [Point(1.0, 0.25), Point(2.0, 0.125)],
    "distinct captions": [Point(1.0, 10.0), Point(2.0, 12.0)],
}


def tracked(*words: str, **changes: Any) -> TrackedImage:
    history = [
        PastCaption(1.0, "a cat", {"CIDEr": 0.5}),
        PastCaption(2.0, " ".join(words), {"CIDEr": 2.5}),
    ]
    photo, view = Image.new("RGB", SIZE, "grey"), caption(*words).view()
    image = TrackedImage("dog.jpg", photo, view, ["a small dog", "a dog runs"], history)
    return replace(image, **changes)


page = partial(
    validation_html,
    title="run",
    summary="After epoch 2 of 3",
    losses=[Point(1.0, 3.0), Point(2.0, 2.0)],
    scores=SCORES,
    images=[tracked("a", "dog")],
    best=("CIDEr", 1.0),
)


def text(html: str) -> list[str]:
    return re.sub(r"<[^>]*>", " ", html).split()


def test_it_shows_captions_by_epoch_the_latest_first() -> None:
    [rows] = re.findall(r'<table class="history">.*?<tbody>(.*?)</tbody>', page())
    assert text(rows) == ["2", "a", "dog", "2.500", "1", "a", "cat", "0.500"]


@pytest.mark.parametrize(("best", "names"), [("CIDEr", ["CIDEr"]), ("BLEU-1", ["BLEU-1", "CIDEr"])])
def test_the_score_that_decides_comes_first(best: str, names: list[str]) -> None:
    found = page(best=(best, 1.0))
    assert re.findall(r'<span class="name">(.*?)</span>', found) == [*names, "Training loss"]
    assert "best: epoch 1" in found


def test_all_scores_stand_in_a_table() -> None:
    [table] = re.findall(r"<summary>All scores.*?<table>(.*?)</table>", page(), re.DOTALL)
    assert text(table) == [
        *("Epoch", "BLEU-1", "CIDEr", "distinct", "captions"),
        *("2", "0.600", "0.125", "12"),
        *("1", "0.500", "0.250", "10"),
    ]


def test_markup_in_data_stays_text() -> None:
    hostile = tracked(MARKUP, "\U0001f415", name=MARKUP, references=[MARKUP])
    html = page(images=[hostile], title=MARKUP, summary=MARKUP, scores={MARKUP: [Point(1.0, 1.0)]})
    assert html.isascii()
    assert MARKUP not in html
    for tag in ("<script", "<img"):
        assert html.count(tag) == page(scores={}).count(tag)


def test_without_scores_images_or_words_there_is_a_page() -> None:
    assert "Training loss" in page(scores={}, images=[], best=None)
    assert "(no words)" in page(images=[tracked(history=[PastCaption(1.0, "", {})])])


def drawn(*values: float, best: float | None = None) -> np.ndarray:
    """The picture of a curve of these values after epochs 1, 2, ..."""
    uri = curve([Point(float(n), value) for n, value in enumerate(values, 1)], best)
    content = base64.b64decode(uri.removeprefix("data:image/png;base64,"))
    return np.asarray(Image.open(io.BytesIO(content)).convert("RGBA"), dtype=int)


def places(*values: float) -> tuple[np.ndarray, np.ndarray]:
    """The rows and columns of the line's pixels."""
    red, _, blue, alpha = np.moveaxis(drawn(*values), -1, 0)
    down, across = np.nonzero((red > blue + 50) & (alpha > 200))
    return down, across


def test_a_rising_score_rises_from_left_to_right() -> None:
    assert np.corrcoef(*places(0.2, 0.5, 0.9))[0, 1] < -0.9


def test_curves_of_any_size_begin_and_end_at_the_same_place() -> None:
    wide, *others = (places(*v)[1] for v in [(0.9871, 0.9913), (0.0, 3.0), (1234.5, 70.0)])
    assert all((each.min(), each.max()) == (wide.min(), wide.max()) for each in others)


def test_an_axis_is_no_finer_than_the_numbers_above_it() -> None:
    assert (drawn(2e-14, 7.5e-14) == drawn(0.0, 0.0)).all()


def test_the_best_epoch_is_marked() -> None:
    assert (drawn(0.2, 0.9, best=1.0) != drawn(0.2, 0.9)).any()


@pytest.mark.parametrize("values", [(), (0.0, 0.0), (math.nan,), (1.0, math.inf, 2.0)], ids=str)
def test_odd_values_are_drawn_too(values: tuple[float, ...]) -> None:
    assert min(drawn(*values).shape[:2]) > 100


@pytest.mark.integration
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 768, 1280])
def test_it_fits_any_width_and_keys_go_to_the_view_in_use(
    browser: Any, tmp_path: Path, theme: Any, width: int
) -> None:
    points = [Point(float(n), n / 10) for n in range(1, 9)]
    scores = dict.fromkeys(("BLEU-1", "BLEU-2", "BLEU-3", "CIDEr", "ROUGE-L"), points)
    history = [PastCaption(n / 2, "a dog", {"BLEU-4": 0.5, "CIDEr": 1.0}) for n in range(1, 12)]
    words = (("a", "dog"), ("the", "cat", "sat"), ("a", MARKUP))
    images = [tracked(*each, name="a" * 60 + ".jpg", history=history) for each in words]
    path, viewport = tmp_path / "validation.html", {"width": width, "height": 640}
    save_html(page(images=images, scores=scores, losses=points), path)
    with opened_page(browser, path.as_uri(), viewport=viewport, color_scheme=theme) as opened:
        views = opened.locator(".example .attention-view")
        views.nth(1).locator(".words button").nth(0).focus()
        opened.keyboard.press("ArrowRight")
        assert [view.get_attribute("data-word") for view in views.all()] == ["", "1", ""]
