import re
from typing import Any

import numpy as np
import pytest
from PIL import Image

from captioning.viewing import validation_page
from captioning.viewing.curves import Point
from captioning.viewing.validation_page import Example, PastCaption

MARKUP = "</script><script>document.title='run'</script><img src=x onerror=alert(1)>"
SCORES = {
    "BLEU-1": [Point(1.0, 0.5), Point(2.0, 0.6)],
    "CIDEr": [Point(1.0, 0.25), Point(2.0, 0.125)],
    "distinct captions": [Point(1.0, 10.0), Point(2.0, 12.0)],
}


def example(words: tuple[str, ...] = ("a", "dog"), **changes: Any) -> Example:
    maps = np.eye(16, dtype=np.float32)[: len(words)].reshape(-1, 4, 4)
    caption = {
        "caption": " ".join(words),
        "words": [{"word": word, "probability": 0.5} for word in words],
        "crop": (15.0, 0.0, 60.0, 60.0),
        "maps": {"attention": maps},
    }
    history = [
        PastCaption(1.0, "a cat", {"CIDEr": 0.5}),
        PastCaption(2.0, " ".join(words), {"CIDEr": 2.5}),
    ]
    given: dict[str, Any] = {
        "name": "dog.jpg",
        "photo": Image.new("RGB", (90, 60), "grey"),
        "caption": caption,
        "references": ["a small dog", "a dog runs"],
        "history": history,
    }
    return Example(**(given | changes))


def page(*examples: Example, **changes: Any) -> str:
    given: dict[str, Any] = {
        "title": "run",
        "summary": "After epoch 2 of 3",
        "losses": [Point(1.0, 3.0), Point(2.0, 2.0)],
        "scores": SCORES,
        "examples": examples or [example()],
        "best": ("CIDEr", 1.0),
    }
    return validation_page.html(**(given | changes))


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
    hostile = example((MARKUP, "\U0001f415"), name=MARKUP, references=[MARKUP])
    html = page(hostile, title=MARKUP, summary=MARKUP, scores={MARKUP: [Point(1.0, 1.0)]})
    assert html.isascii()
    assert MARKUP not in html
    for tag in ("<script", "<img"):
        assert html.count(tag) == page().count(tag)
    assert "Content-Security-Policy\" content=\"default-src 'none'" in html


def test_without_scores_images_or_words_there_is_a_page() -> None:
    assert "Training loss" in page(scores={}, examples=[], best=None)
    assert "(no words)" in page(example((), history=[PastCaption(1.0, "", {})]))
