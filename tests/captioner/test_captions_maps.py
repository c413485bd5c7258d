"""Captions with other maps than attention."""

from pathlib import Path

import pytest
import torch

from captioning.captioner import Captioner
from captioning.data.records import Record
from captioning.errors import InputError
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
