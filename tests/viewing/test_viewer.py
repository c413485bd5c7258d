import base64
import hashlib
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from captioning.captioner.caption import Caption, RunnerUp
from captioning.errors import InputError
from captioning.maps import MAPS
from captioning.viewing import viewer
from captioning.viewing.html_document import PACKAGE
from tests.conftest import tags
from tests.viewing.conftest import SIZE, caption

MARKUP = "</script><img src=x onerror=alert(1)>&lt;\u2028\udcff"


def photo(size: tuple[int, int] = SIZE) -> Image.Image:
    return Image.linear_gradient("L").resize(size).convert("RGB")


def page_of(given: Caption, title: str = "") -> str:
    return viewer.viewer_html(photo(), [given.view()], title)


def shown(page: str) -> dict[str, Any]:
    """The data within a page."""
    [text] = re.findall(r"data-attention-view>(.*?)</script>", page)
    return json.loads(text)


def test_a_map_has_one_byte_per_region_and_its_peak() -> None:
    weights = np.random.default_rng(0).dirichlet(np.ones(12), 2).reshape(2, 3, 4)
    maps = {"attention": weights, "occlusion": np.roll(weights, 1, 2)}
    given = caption("a", "dog", maps=maps, shown_maps=("occlusion", "attention"))
    [found] = viewer.data(photo(), [given.view()])["captions"]
    assert [each["map"] for each in found["maps"]] == ["occlusion", "attention"]
    for each in found["maps"]:
        assert (each["rows"], each["columns"]) == (3, 4)
        for word, weights in zip(each["words"], given.map(each["map"]), strict=True):
            levels = np.frombuffer(base64.b64decode(word["weights"]), dtype=np.uint8)
            assert (len(levels), levels.max()) == (12, 255)
            shares = levels.reshape(3, 4) / 255 * word["peak"]
            np.testing.assert_allclose(shares, weights, atol=word["peak"] / 500)


def test_the_photo_is_a_small_jpeg_without_metadata() -> None:
    large = photo((3000, 1500))
    large.info |= {"comment": b"at home", "xmp": b"at home"}
    data = viewer.data(large, [caption("dog").view()])
    with Image.open(io.BytesIO(base64.b64decode(data["photo"].split(",")[1]))) as small:
        assert (small.format, small.size) == ("JPEG", (1024, 512))
        assert not {"comment", "xmp", "exif"} & small.info.keys()
    assert (data["size"], data["crop"]) == ([3000, 1500], [15.0, 0.0, 60.0, 60.0])
    assert large.info["comment"] == b"at home"


def test_a_page_refers_to_nothing_and_forbids_the_rest() -> None:
    page = page_of(caption("dog"))
    asked = [a.get("src") or a.get("href") for _, a in tags(page)]
    assert {address for address in asked if address} == {"data:,"}
    assert not re.search(r"https?:|@import|url\(", page)
    [policy] = [str(a["content"]) for _, a in tags(page) if "http-equiv" in a]
    assert policy.startswith("default-src 'none'; img-src data:;")
    assert "unsafe" not in policy
    for tag in ("script", "style"):
        [content] = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy


def test_markup_in_words_and_titles_stays_text() -> None:
    page = page_of(caption(MARKUP, runners_up=((RunnerUp(MARKUP, 0.2),),)), MARKUP)
    assert [tag for tag, _ in tags(page)] == [tag for tag, _ in tags(page_of(caption("dog")))]
    data = shown(page)
    [word] = data["captions"][0]["words"]
    assert data["title"] == word["word"] == word["runners_up"][0]["word"] == MARKUP
    assert page.isascii()
    assert "<noscript><p>a &lt;unk&gt; dog</p></noscript>" in page_of(caption("a", "<unk>", "dog"))


def test_the_index_links_to_pages_and_shows_sentences() -> None:
    notes = ["a b · 71% sure"]
    cards = [viewer.PhotoCard("a b", "data:,", "A dog.", notes, 0.71, "a b.html")]
    page = viewer.index_html([*cards, viewer.PhotoCard(MARKUP, "data:,", "", [MARKUP])])
    assert next(a["href"] for tag, a in tags(page) if tag == "a") == "a%20b.html"
    assert 'A dog.</strong><small dir="auto">a b &#183; 71% sure</small>' in page
    assert "No words.</strong>" in page
    assert [tag for tag, _ in tags(page)].count("img") == 2
    assert "<select" in page
    assert "<select" not in viewer.index_html([cards[0]._replace(value=None)])


def test_a_notebook_shows_a_caption_in_a_sandbox(tmp_path: Path) -> None:
    photo().save(tmp_path / "photo.png")
    for given in (tmp_path / "photo.png", photo()):
        [(tag, attributes)] = tags(str(caption("dog", photo=given)._repr_html_()))
        assert (tag, attributes["sandbox"]) == ("iframe", "allow-scripts")
        assert shown(str(attributes["srcdoc"]))["captions"][0]["caption"] == "dog"


def test_a_caption_whose_photo_is_gone_is_plain_text(tmp_path: Path) -> None:
    for given in (None, tmp_path / "gone.jpg", photo((7, 7))):
        assert caption("dog", photo=given)._repr_html_() is None
    with pytest.raises(InputError, match="the photo has another size by now, "):
        caption("dog", photo=photo((7, 7))).save(tmp_path / "a.png")


def test_the_script_has_a_title_for_every_map() -> None:
    script = Path(viewer.__file__).with_suffix(".js").read_text()
    [names] = re.findall(r"const NAMES = \{(.*?)\};", script, flags=re.DOTALL)
    assert re.findall(r'^ *"(\S+)":', names, flags=re.MULTILINE) == list(MAPS)


def test_nothing_looks_pointed_at_after_a_tap() -> None:
    for path in PACKAGE.rglob("*.css"):
        style = re.sub(
            r"^@media \(hover: hover\) \{.*?^\}", "", path.read_text(), flags=re.M | re.S
        )
        assert ":hover" not in style, path
