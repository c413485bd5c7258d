import base64
import hashlib
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from captioning.captioner.caption import Caption, RunnerUp
from captioning.maps import MAPS
from captioning.viewing import viewer
from captioning.viewing.notebook import notebook_view

MARKUP = "</script><img src=x onerror=alert(1)>&lt;\u2028\udcff"


def caption(*words: str, size: tuple[int, int] = (60, 40), **changes: Any) -> Caption:
    weights = torch.rand(len(words), 3, 4, generator=torch.Generator().manual_seed(0))
    weights /= weights.sum((1, 2), keepdim=True)
    others = tuple((RunnerUp("cat", 0.2), RunnerUp(None, 0.1)) for _ in words)
    probabilities = (0.5,) * len(words)
    crop = (10.0, 0.0, 40.0, 40.0)
    maps = {"attention": weights, "occlusion": weights.flip(2)}
    values: dict[str, Any] = {"shown_maps": ("attention",), "runners_up": others, **changes}
    return Caption(words, probabilities, -1.0, crop, size, maps, **values)


def photo(size: tuple[int, int] = (60, 40)) -> Image.Image:
    return Image.linear_gradient("L").resize(size).convert("RGB")


class Document(HTMLParser):
    """What a page is made of: its tags with their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def shown(page: str) -> dict[str, Any]:
    """The data within a page."""
    [text] = re.findall(r"data-attention-view>(.*?)</script>", page)
    return json.loads(text)


def jpeg(data: dict[str, Any]) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(data["photo"].split(",")[1])))


def test_a_map_has_one_byte_per_region_and_its_peak() -> None:
    given = caption("a", "dog", shown_maps=("occlusion", "attention"))
    [found] = viewer.data(photo(), [given])["captions"]
    assert [each["map"] for each in found["maps"]] == ["occlusion", "attention"]
    for each in found["maps"]:
        assert (each["rows"], each["columns"]) == (3, 4)
        for word, weights in zip(each["words"], given.map(each["map"]), strict=True):
            levels = np.frombuffer(base64.b64decode(word["weights"]), dtype=np.uint8)
            assert (len(levels), levels.max()) == (12, 255)
            shares = levels.reshape(3, 4) / 255 * word["peak"]
            np.testing.assert_allclose(shares, weights, atol=word["peak"] / 500)


def test_maps_that_are_not_shown_are_not_computed() -> None:
    def compute(name: str) -> torch.Tensor:
        raise AssertionError(name)

    given = caption("dog", _compute=compute)
    [found] = viewer.data(photo(), [given])["captions"]
    assert [each["map"] for each in found["maps"]] == ["attention"]


def test_words_come_with_probabilities_and_runners_up() -> None:
    [found] = viewer.data(photo(), [caption("dog")])["captions"]
    [word] = found["words"]
    assert (found["caption"], word["word"], word["probability"]) == ("dog", "dog", 0.5)
    others = [{"word": "cat", "probability": 0.2}, {"word": None, "probability": 0.1}]
    assert word["runners_up"] == others


def test_the_photo_is_a_small_jpeg_of_its_own_shape_without_metadata() -> None:
    large = photo((3000, 1500))
    large.info |= {"comment": b"at home", "xmp": b"at home"}
    given = caption("dog", size=(3000, 1500))
    data = viewer.data(large, [given])
    with jpeg(data) as small:
        assert (small.format, small.size) == ("JPEG", (1024, 512))
        assert not {"comment", "xmp", "exif"} & small.info.keys()
    assert (data["size"], data["crop"]) == ([3000, 1500], list(given.crop))
    assert large.info["comment"] == b"at home"


def test_a_page_refers_to_nothing_and_forbids_the_rest() -> None:
    page = viewer.html(photo(), [caption("dog")], "dog.jpg")
    document = Document(page)
    assert not [a for _, attributes in document.tags for a in attributes if a in ("src", "href")]
    assert not re.search(r"https?:|@import|url\(", page)
    [policy] = [str(a["content"]) for _, a in document.tags if "http-equiv" in a]
    assert policy.startswith("default-src 'none'; img-src data:;")
    assert "unsafe" not in policy


@pytest.mark.parametrize("tag", ["script", "style"])
def test_the_policy_names_what_is_between_the_tags(tag: str) -> None:
    page = viewer.html(photo(), [caption("dog")])
    [content] = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
    assert f"{tag}-src 'sha256-{digest}'" in page


def test_markup_in_words_and_titles_stays_text() -> None:
    plain = Document(viewer.html(photo(), [caption("dog")], "title"))
    others = ((RunnerUp(MARKUP, 0.2),),)
    page = viewer.html(photo(), [caption(MARKUP, runners_up=others)], MARKUP)
    assert [tag for tag, _ in Document(page).tags] == [tag for tag, _ in plain.tags]
    data = shown(page)
    [word] = data["captions"][0]["words"]
    assert data["title"] == word["word"] == word["runners_up"][0]["word"] == MARKUP
    assert page.isascii()


def test_the_caption_is_shown_without_scripts() -> None:
    page = viewer.html(photo(), [caption("a", "<unk>", "dog")])
    assert "<noscript><p>a &lt;unk&gt; dog</p></noscript>" in page


def test_a_caption_without_words_has_a_page() -> None:
    assert shown(viewer.html(photo(), [caption()]))["captions"][0]["words"] == []


def test_a_saved_page_is_complete(tmp_path: Path) -> None:
    viewer.save(photo(), [caption("dog")], tmp_path / "new" / "dog.html", "dog.jpg")
    saved = (tmp_path / "new" / "dog.html").read_text(encoding="utf-8")
    assert saved == viewer.html(photo(), [caption("dog")], "dog.jpg")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["dog.html"]


def test_a_notebook_shows_a_caption_in_a_sandbox(tmp_path: Path) -> None:
    photo().save(tmp_path / "photo.png")
    for given in (tmp_path / "photo.png", photo()):
        [(tag, attributes)] = Document(str(notebook_view(caption("dog", photo=given)))).tags
        assert (tag, attributes["sandbox"]) == ("iframe", "allow-scripts")
        assert shown(str(attributes["srcdoc"]))["captions"][0]["caption"] == "dog"


def test_a_caption_whose_photo_has_gone_is_shown_as_plain_text(tmp_path: Path) -> None:
    assert notebook_view(caption("dog")) is None
    assert notebook_view(caption("dog", photo=tmp_path / "gone.jpg")) is None
    assert notebook_view(caption("dog", photo=photo((7, 7)))) is None


def test_the_script_has_a_title_for_every_map() -> None:
    script = Path(viewer.__file__).with_suffix(".js").read_text()
    [names] = re.findall(r"const NAMES = \{(.*?)\};", script, flags=re.DOTALL)
    assert re.findall(r'^ *"(\S+)":', names, flags=re.MULTILINE) == list(MAPS)
