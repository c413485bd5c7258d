"""Captions with other maps than attention."""

from pathlib import Path

import pytest
import torch

from captioning.captioner import Captioner
from captioning.data.records import Record
from captioning.errors import InputError
from captioning.models import TransformerDecoder
from captioning.search import BeamSearch


@pytest.fixture
def photos(shapes_records: list[Record]) -> list[Path]:
    return [record.image for record in shapes_records[:3]]


def test_a_caption_has_the_first_map_as_weights_and_the_others_to_compare(
    captioner: Captioner, photos: list[Path]
) -> None:
    names = ("occlusion", "attention", "fine-grad-cam")
    plain, mapped = captioner.caption(photos), captioner.caption(photos, maps=names)
    for before, after in zip(plain, mapped, strict=True):
        assert (before.map_name, dict(before.further_maps)) == ("attention", {})
        assert after.map_name == "occlusion"
        assert (after.words, after.score) == (before.words, before.score)
        assert list(after.further_maps) == ["attention", "fine-grad-cam"]
        torch.testing.assert_close(after.further_maps["attention"], before.weights)
        assert after.weights.shape == before.weights.shape
        assert after.further_maps["fine-grad-cam"].shape == (len(after.words), 8, 8)


def test_every_beam_has_the_maps_of_its_own_words(captioner: Captioner, photos: list[Path]) -> None:
    search = BeamSearch(width=3, max_length=5)
    for found in captioner.candidates(photos, search, maps=["gradient"]):
        for caption in found:
            sums = caption.weights.sum(dim=(1, 2))
            torch.testing.assert_close(sums, torch.ones(len(caption.words)))


@pytest.fixture
def with_heads(captioner: Captioner) -> Captioner:
    """The captioner with a transformer of two layers, each of two heads."""
    torch.manual_seed(3)
    sizes = {"width": 8, "layers": 2, "heads": 2, "inner_width": 8}
    decoder = TransformerDecoder(captioner.encoder.annotation_dim, 8, **sizes)
    for parameter in decoder.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    captioner.decoder = decoder.eval()
    return captioner


def test_every_layer_and_head_is_a_map_to_compare(
    with_heads: Captioner, photos: list[Path]
) -> None:
    decoder = with_heads.decoder
    heads = decoder.map_names
    [caption, *_] = with_heads.caption(photos, maps=["heads"])
    assert [caption.map_name, *caption.further_maps] == ["attention", *heads]
    assert decoder.reported_map == "layer 2 mean"
    torch.testing.assert_close(caption.further_maps["layer 2 mean"], caption.weights)
    for head in heads:
        decoder.report_map(head)
        [alone, *_] = with_heads.caption(photos)
        torch.testing.assert_close(caption.further_maps[head], alone.weights)
    assert not caption.further_maps["layer 1 head 1"].allclose(caption.weights)


def test_a_caption_shows_another_of_its_maps(with_heads: Captioner, photos: list[Path]) -> None:
    names = ["attention", "layer 1 head 2"]
    [caption, *_] = with_heads.caption(photos, maps=names)
    other = caption.showing("layer 1 head 2")
    assert other.map_name == "layer 1 head 2"
    assert other.weights is caption.further_maps["layer 1 head 2"]
    assert list(other.further_maps) == ["attention"]
    again = other.showing("attention")
    assert (again.map_name, list(again.further_maps)) == ("attention", ["layer 1 head 2"])
    assert again.weights is caption.weights
    with pytest.raises(InputError, match="no map 'head 9'; it has attention, layer 1 head 2"):
        caption.showing("head 9")


def test_heads_of_a_model_with_one_map_are_refused(
    captioner: Captioner, photos: list[Path]
) -> None:
    with pytest.raises(InputError, match="this model has one map of attention alone"):
        captioner.caption(photos, maps=["heads"])
    with pytest.raises(InputError, match="unknown map 'layer 1 mean'"):
        captioner.caption(photos, maps=["layer 1 mean"])


def test_a_map_that_a_model_has_not_is_refused_by_name(
    captioner: Captioner, photos: list[Path]
) -> None:
    with pytest.raises(InputError, match="unknown map 'lime'"):
        captioner.caption(photos, maps=["lime"])


def test_captions_that_are_left_out_cost_no_maps(captioner: Captioner, photos: list[Path]) -> None:
    search = BeamSearch(width=3, max_length=5)
    whole = captioner.candidates(photos, search, maps=["occlusion"])
    rows: list[int] = []
    captioner.decoder.register_forward_hook(lambda _, inputs, __: rows.append(inputs[1].shape[1]))
    found = captioner.candidates(photos, search, maps=["occlusion"], most=2)
    assert set(rows) == {2}
    for some, every in zip(found, whole, strict=True):
        assert [each.words for each in some] == [each.words for each in every[:2]]
        for one, same in zip(some, every, strict=False):
            torch.testing.assert_close(one.weights, same.weights, atol=1e-5, rtol=1e-3)
