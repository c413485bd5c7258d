import io
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from captioning.captioner import Caption, Captioner, load
from captioning.data.vocabulary import EOS, Vocabulary
from captioning.errors import InputError
from captioning.models import Adapter, LSTMDecoder, Model
from captioning.search import ConstrainedBeamSearch, DiverseBeamSearch, Greedy, Sampling, Search
from tests.conftest import unchecked
from tests.fixtures import Patches, checkpoint_of


def photo(width: int, height: int, seed: int = 0) -> Image.Image:
    """A photo of coloured patches."""
    patches = np.random.default_rng(seed).integers(0, 255, (5, 5, 3), dtype=np.uint8)
    return Image.fromarray(patches).resize((width, height))


PHOTOS = [photo(64, 48, 1), photo(20, 90, 2), photo(33, 33, 3), photo(200, 40, 4)]


def with_eos_score(captioner: Captioner, score: float) -> Captioner:
    """The captioner, with a score of the end mark that decides."""
    captioner.model.decoder.get_parameter("output.bias").data[EOS] = score
    return captioner


def assert_same(first: Caption, second: Caption) -> None:
    assert first.words == second.words
    assert first.probabilities == pytest.approx(second.probabilities, rel=1e-3)
    assert first.score == pytest.approx(second.score, rel=1e-4)
    torch.testing.assert_close(first.maps["attention"], second.maps["attention"])
    assert (first.crop, first.size) == (second.crop, second.size)


def test_a_saved_captioner_gives_the_same_captions_when_loaded(
    captioner: Captioner, tmp_path: Path
) -> None:
    expected = captioner(PHOTOS)
    captioner.model.train()
    loaded = load(checkpoint_of(captioner, tmp_path / "best.ckpt"))
    assert not any(module.training for module in loaded.model.modules())
    for ours, theirs in zip(expected, loaded(PHOTOS), strict=True):
        assert_same(ours, theirs)


def test_a_batch_of_photos_equals_its_photos_one_by_one(captioner: Captioner) -> None:
    captioner.model.double()
    for one, together in zip(PHOTOS, captioner(PHOTOS), strict=True):
        assert_same(captioner([one])[0], together)


def test_words_but_no_end_mark_have_probabilities_and_maps(captioner: Captioner) -> None:
    for caption in with_eos_score(captioner, 20)(PHOTOS, Greedy(min_length=3)):
        assert len(caption.words) == len(caption.probabilities) == 3
        assert all(0 < probability <= 1 for probability in caption.probabilities)
        assert caption.map().shape == (3, 4, 4)
        torch.testing.assert_close(caption.map().sum((1, 2)), torch.ones(3))


def test_the_crop_is_what_the_model_saw(captioner: Captioner) -> None:
    wide = captioner([PHOTOS[3]])[0]
    assert (wide.crop, wide.size) == ((80, 0, 40, 40), (200, 40))
    seen = PHOTOS[3].crop((80, 0, 120, 40))
    assert captioner([seen])[0].words == wide.words


def test_a_search_in_bfloat16_scores_nearly_the_same(checkpoint: Path) -> None:
    exact = load(checkpoint)(PHOTOS)
    rounded = load(checkpoint, bfloat16=True)(PHOTOS)
    for caption, other in zip(exact, rounded, strict=True):
        assert other.score == pytest.approx(caption.score, rel=0.02)
        assert other.score != caption.score


@pytest.mark.parametrize("fast", [False, True])
def test_bfloat16_encodes_photos_only_where_it_is_fast(
    captioner: Captioner, monkeypatch: pytest.MonkeyPatch, fast: bool
) -> None:
    name = "captioning.captioner.inference_network.multiplies_bfloat16_fast"
    monkeypatch.setattr(name, lambda: fast)
    images = captioner.preprocessing(PHOTOS[0]).pixels[None]
    exact = captioner.network.encode(images)
    captioner.network.bfloat16 = True
    found = captioner.network.encode(images)
    assert found.dtype == torch.float32
    assert found.equal(exact) != fast


@pytest.mark.parametrize("name", ["bfloat16", "kernels", "map_name"])
def test_a_captioner_refuses_attributes_that_would_have_no_effect(
    captioner: Captioner, name: str
) -> None:
    with pytest.raises(AttributeError, match=name):
        setattr(captioner, name, True)


def test_read_words_have_the_numbers_of_generated_ones(captioner: Captioner) -> None:
    search = Greedy(max_length=6)
    [caption] = with_eos_score(captioner, 1)([PHOTOS[0]], search, runners_up=2)
    read = captioner.read(PHOTOS[0], caption.text, runners_up=2, maps=["gradient"])
    assert (read.words, read.shown_maps) == (caption.words, ("gradient",))
    assert read.probabilities == pytest.approx(caption.probabilities, rel=1e-4)
    torch.testing.assert_close(read.map("attention"), caption.map("attention"))
    torch.testing.assert_close(read.map(), caption.map("gradient"))
    with pytest.raises(InputError, match=r"'purple', 'cow'; did you mean .* or .*, .* or .*\?"):
        captioner.read(PHOTOS[0], "a purple cow")
    ours, theirs = (sum(each.runners_up, ()) for each in (read, caption))
    assert [each.word for each in ours] == [each.word for each in theirs]
    assert [each.probability for each in ours] == pytest.approx(
        [each.probability for each in theirs], rel=1e-4
    )


def test_the_tokenizer_is_stored_and_writes_captions(captioner: Captioner, tmp_path: Path) -> None:
    words = [chr(ord("一") + n) for n in range(len(captioner.vocabulary.words))]
    captioner.vocabulary = Vocabulary(words, "characters")
    loaded = load(checkpoint_of(captioner, tmp_path / "best.ckpt"))
    assert loaded.vocabulary.tokenizer == "characters"
    caption = loaded(PHOTOS[0], Greedy(max_length=6))
    assert caption.text == "".join(caption.words) != ""
    assert loaded.read(PHOTOS[0], caption.text).words == caption.words
    with unchecked(), pytest.raises(InputError, match="unknown tokenizer 'magic'"):
        Captioner.from_config(captioner.config | {"tokenizer": "magic"})


@pytest.mark.parametrize(
    "search",
    [
        Greedy(),
        Sampling(temperature=0.5),
        DiverseBeamSearch(),
        ConstrainedBeamSearch(begin=[4], avoid=[[5, 6]], must_say=[[7]]),
    ],
    ids=lambda search: type(search).__name__,
)
def test_a_captioner_of_any_search_can_be_loaded(
    captioner: Captioner, search: Search, tmp_path: Path
) -> None:
    captioner.search = search
    loaded = load(checkpoint_of(captioner, tmp_path / "best.ckpt"))
    assert loaded.search.config == search.config
    assert type(loaded.search) is type(search)


class Reading(Patches):
    """Reads a number while it is built, which the device meta has not."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.ones(1).item()


def test_an_encoder_that_reads_numbers_as_it_is_built_can_be_loaded(
    captioner: Captioner, tmp_path: Path
) -> None:
    encoder = Reading()
    decoder = LSTMDecoder(encoder.annotation_dim, len(captioner.vocabulary), 4, 4, 4)
    model = Model(encoder, Adapter(encoder.annotation_dim), decoder)
    own = Captioner(model, captioner.vocabulary, captioner.preprocessing)
    assert load(checkpoint_of(own, tmp_path / "best.ckpt")).model.encoder.scale == 1


class Table(list[str]):
    """Like a data frame of pandas: gives the names of its columns."""

    columns = ()


def test_photos_come_one_or_many_in_any_form(captioner: Captioner, tmp_path: Path) -> None:
    path = tmp_path / "photo.png"
    PHOTOS[0].save(path)
    pixels = np.array(PHOTOS[0].convert("RGB"))
    wanted = captioner(path)
    for photo in (PHOTOS[0], torch.from_numpy(pixels).permute(2, 0, 1)):
        assert_same(captioner(photo), wanted)
    for wrong in (pixels / 255, Table(["image"])):
        with pytest.raises(InputError, match="give "):
            captioner(wrong)
    several = [
        (PHOTOS[0] for _ in range(18)),  # more than are captioned at once
        (str(path), path),
        np.array([str(path)]),
        np.array([path, {"image": path}], dtype=object),
        [io.BytesIO(path.read_bytes())],
        pixels[None],
        torch.from_numpy(pixels).permute(2, 0, 1)[None],
    ]
    for given, count in zip(several, (18, 2, 1, 2, 1, 1, 1), strict=True):
        assert [caption.words for caption in captioner(given)] == [wanted.words] * count
    assert captioner([]) == []


def test_a_caption_saves_a_picture_an_animation_and_a_page(
    captioner: Captioner, tmp_path: Path
) -> None:
    caption = captioner(PHOTOS[0])
    assert caption.array().shape == tuple(caption.map().shape)
    for suffix in ("png", "gif", "html"):
        caption.save(tmp_path / f"caption.{suffix}")
    with Image.open(tmp_path / "caption.png") as picture:
        assert picture.format == "PNG"
    with Image.open(tmp_path / "caption.gif") as animation:
        assert animation.n_frames == len(caption.words)  # type: ignore[attr-defined]
    assert "data-attention-view" in (tmp_path / "caption.html").read_text()
    with pytest.raises(InputError, match=r"a name that ends in \.png, \.gif or \.html"):
        caption.save(tmp_path / "caption.jpg")


def test_keywords_are_content_words_that_distinguish_photos(captioner: Captioner) -> None:
    words = ("Two", "dogs", "sitting", "in", "the", "middle", "of", "a", "road", "dogs")
    chances = (0.9, 0.6, 0.8, None, None, 0.7, None, None, 0.75, 0.5)
    caption = replace(captioner(PHOTOS[0]), words=words, named=chances)
    assert list(caption.keywords.items()) == [("road", 0.75), ("dogs", 0.6)]


def test_captions_compare_by_content_and_leave_the_model_behind(
    captioner: Captioner, tmp_path: Path
) -> None:
    PHOTOS[0].save(tmp_path / "photo.png")
    search = Greedy(min_length=3, max_length=3)
    [one, two], other = captioner([tmp_path / "photo.png"] * 2, search), captioner(PHOTOS[1])
    two.map("occlusion")
    assert one == two != other
    assert len({one, two, other}) == 2
    assert repr(one) == f"Caption('{one.text}')"
    assert repr(replace(one, confidence=0.125)) == f"Caption('{one.text}', confidence=0.12)"
    content = pickle.dumps([one, other])
    assert len(content) < 5000
    thawed, drawn = pickle.loads(content)
    assert thawed == one
    assert thawed.map().equal(one.map("attention"))
    thawed.save(tmp_path / "photo.html")
    with pytest.raises(InputError, match="give one as photo"):
        drawn.save(tmp_path / "drawn.png")
    drawn.save(tmp_path / "drawn.png", PHOTOS[1].convert("RGBA"))
    with pytest.raises(InputError, match="the caption has no map 'occlusion'; it has attention"):
        thawed.map("occlusion")


def test_a_list_of_captions_shows_its_first_photos(captioner: Captioner) -> None:
    captions: Any = captioner([*PHOTOS, captioner.preprocessing(PHOTOS[0])] * 6)
    page = captions._repr_html_()
    assert (page.count("<p>"), page.count("<img")) == (25, 20)
    assert page.endswith("<p>6 more</p>")


def test_a_sentence_has_a_full_stop_in_scripts_with_capitals(captioner: Captioner) -> None:
    caption = captioner(PHOTOS[0])
    for words, sentence in ((("a", "dog"), "A dog."), ((), ""), (("犬",), "犬"), (("ß",), "SS.")):
        assert replace(caption, words=words).sentence == sentence
