import base64
import re
from typing import Any

import torch
from PIL import Image

from captioning.captioner.caption import Caption
from captioning.viewing import validation_page
from captioning.viewing.curves import Point
from captioning.viewing.validation_page import Example, Told

MARKUP = "</script><script>document.title='run'</script><img src=x onerror=alert(1)>"
SCORES = {
    "BLEU-1": [Point(1.0, 0.5), Point(2.0, 0.6)],
    "CIDEr": [Point(1.0, 0.25), Point(2.0, 0.125)],
    "distinct captions": [Point(1.0, 10.0), Point(2.0, 12.0)],
}


def example(words: tuple[str, ...] = ("a", "dog"), **changes: Any) -> Example:
    weights = torch.eye(16)[: len(words)].unflatten(1, (4, 4))
    crop = (15.0, 0.0, 60.0, 60.0)
    caption = Caption(
        words, (0.5,) * len(words), -1.0, crop, (90, 60), {"attention": weights}, ("attention",)
    )
    history = [Told(1.0, "a cat", {"CIDEr": 0.5}), Told(2.0, caption.text, {"CIDEr": 2.5})]
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


def text(html: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", html))


def test_it_shows_captions_by_epoch_the_latest_first() -> None:
    html = page()
    [rows] = re.findall(r'<table class="history">.*?<tbody>(.*?)</tbody>', html)
    assert [text(row).split() for row in rows.split("</tr>")[:-1]] == [
        ["2", "a", "dog", "2.500"],
        ["1", "a", "cat", "0.500"],
    ]


def test_the_score_that_decides_comes_first_with_its_best_epoch() -> None:
    names = re.findall(r'<span class="name">(.*?)</span>', page())
    assert names == ["CIDEr", "Training loss"]
    assert "best: epoch 1" in page()
    other = page(best=("BLEU-1", 2.0))
    assert re.findall(r'<span class="name">(.*?)</span>', other)[0] == "BLEU-1"


def test_all_scores_stand_in_a_table() -> None:
    [table] = re.findall(r"<summary>All scores.*?<table>(.*?)</table>", page(), re.DOTALL)
    assert text(table).split() == [
        *("Epoch", "BLEU-1", "CIDEr", "distinct", "captions"),
        *("2", "0.600", "0.125", "12"),
        *("1", "0.500", "0.250", "10"),
    ]


def test_markup_in_data_stays_text() -> None:
    hostile = example((MARKUP,), name=MARKUP, references=[MARKUP])
    html = page(hostile, title=MARKUP, summary=MARKUP, scores={MARKUP: [Point(1.0, 1.0)]})
    assert MARKUP not in html
    assert "<img src=x" not in html
    plain = page()
    assert html.count("<script") == plain.count("<script")
    assert html.count("<img") == plain.count("<img")


def test_it_names_no_address_and_is_ascii() -> None:
    html = page(example(("caf\u00e9", "\U0001f415")))
    html.encode("ascii")
    policy = re.findall(r'Content-Security-Policy" content="([^"]*)"', html)[0]
    assert "default-src 'none'" in policy
    assert not re.search(r"https?:|//[a-z]", html.replace("http://www.w3.org", ""))


def test_photos_lose_their_metadata() -> None:
    photo = Image.new("RGB", (90, 60), "grey")
    photo.info["comment"] = b"secret place"
    html = page(example(photo=photo))
    pictures = re.findall(r"data:image/jpeg;base64,([A-Za-z0-9+/=]+)", html)
    assert len(pictures) == 2
    assert all(b"secret" not in base64.b64decode(picture) for picture in pictures)


def test_without_scores_images_or_words_there_is_a_page() -> None:
    assert "Training loss" in page(scores={}, examples=[], best=None)
    assert "(no words)" in page(example((), history=[Told(1.0, "", {})]))


def test_eight_photos_make_a_page_of_moderate_size() -> None:
    noise = torch.randint(0, 256, (480, 640, 3), dtype=torch.uint8).numpy()
    photo = Image.fromarray(noise).resize((90, 60)).resize((640, 480))
    words = tuple("abcdefghijklmnop")
    weights = torch.rand(16, 14, 14)
    caption = Caption(
        *(words, (0.5,) * 16, -1.0, (80.0, 0.0, 480.0, 480.0), (640, 480)),
        maps={"attention": weights},
        shown_maps=("attention",),
    )
    history = [Told(float(n), caption.text, {"CIDEr": 1.0}) for n in range(50)]
    each = example(photo=photo, caption=caption, history=history)
    assert len(page(*[each] * 8)) < 3_000_000
