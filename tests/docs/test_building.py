"""What the pages are built with: signatures, the gallery, and the look for addresses elsewhere."""

from pathlib import Path

import pytest
from PIL import Image

from captioning.captioner import Caption
from captioning.models import AdditiveAttention, Encoder
from captioning.models.attention import masked_softmax
from captioning.models.decoder import Step
from captioning.search import BeamSearch, Decoded
from docs._ext.gallery import exhibits
from docs._ext.offline import fetched_from_elsewhere
from docs._ext.references import with_paths
from docs._ext.signatures import written_signature
from tests.docs.pages import DOCS


def test_shapes_stand_in_signatures_as_in_the_source() -> None:
    assert written_signature(AdditiveAttention.scores) == (
        "(query: Float[Tensor, 'B N Q'], keys: Float[Tensor, 'B L A'])",
        "Float[Tensor, 'B N L']",
    )
    arguments, _ = written_signature(masked_softmax) or ("", "")
    assert arguments.startswith("(scores: Float[Tensor,")


def test_ranges_stand_in_signatures_by_their_names() -> None:
    arguments, result = written_signature(BeamSearch) or ("", "")
    assert arguments.startswith("(width: BeamWidth=3, length_penalty: LengthPenalty=1.0,")
    assert result == ""


def test_fields_are_the_signature_of_dataclasses_and_named_tuples() -> None:
    arguments, _ = written_signature(Step) or ("", "")
    assert arguments.startswith("(logits: Float[Tensor, 'B N V'], weights: Float[Tensor, 'B N L'],")
    assert (written_signature(Decoded) or ("", ""))[0].count(": ") == len(Decoded._fields)
    assert "runners_up: tuple[tuple[RunnerUp, ...], ...]=()" in written_signature(Caption)[0]  # type: ignore[index]


def test_a_class_of_ours_without_a_constructor_has_no_arguments() -> None:
    assert written_signature(Encoder) == ("", "")
    assert written_signature(ValueError) is None  # autodoc knows better


def test_the_gallery_shows_what_people_might_say(tmp_path: Path) -> None:
    first, second = exhibits(tmp_path, "", scenes=2)
    assert first.picture != second.picture
    for exhibit in (first, second):
        assert len({exhibit.title, *exhibit.lines}) == 5
        assert exhibit.picture.stat().st_size < 100_000
        with Image.open(exhibit.picture) as picture:
            assert picture.size == (256, 256)


def test_the_gallery_shows_hard_scenes_of_its_own(tmp_path: Path) -> None:
    [easy] = exhibits(tmp_path, "", scenes=1)
    [hard] = exhibits(tmp_path, "", scenes=1, hard=True)
    assert len({hard.title, *hard.lines}) == 5
    assert hard.picture.read_bytes() != easy.picture.read_bytes()


def test_the_gallery_shows_where_a_model_looked(tmp_path: Path, checkpoint: Path) -> None:
    [exhibit] = exhibits(tmp_path, str(checkpoint), scenes=1)
    [verdict] = exhibit.lines
    assert verdict.startswith(("Right", "Not right"))
    with Image.open(exhibit.picture) as picture:
        assert picture.width > 256  # a panel for each word


def test_the_gallery_is_the_same_every_time(tmp_path: Path) -> None:
    [first] = exhibits(tmp_path / "first", "", scenes=1)
    [second] = exhibits(tmp_path / "second", "", scenes=1)
    assert first.picture.read_bytes() == second.picture.read_bytes()
    assert first.title == second.title


@pytest.mark.parametrize(
    "page",
    [
        '<script src="https://cdn.example/x.js"></script>',
        '<link rel="stylesheet" href="//cdn.example/x.css">',
        '<img src="http://example.org/a.png">',
    ],
)
def test_what_a_browser_would_fetch_from_elsewhere_is_found(page: str) -> None:
    assert len(fetched_from_elsewhere(page)) == 1


def test_links_and_files_of_the_pages_are_fine() -> None:
    page = (
        '<a href="https://arxiv.org">paper</a><img src="a.png"><script src="_static/x.js"></script>'
    )
    assert fetched_from_elsewhere(page) == []


def test_style_sheets_are_looked_through_too() -> None:
    style = (
        '@import "https://fonts.example/f.css"; a { background: url(x.svg) } b { src: url(//c/f) }'
    )
    assert fetched_from_elsewhere(style, is_style=True) == ["https://fonts.example/f.css", "//c/f"]


def test_a_file_that_is_no_page_is_named_by_its_path() -> None:
    text = (
        "[one](../README.md#set-up), [two](../tests/campaign), [three](reading.md), [4](../no.md)"
    )
    assert with_paths(text, DOCS.parent) == (
        "`README.md`, `tests/campaign`, [three](reading.md), [4](../no.md)"
    )
