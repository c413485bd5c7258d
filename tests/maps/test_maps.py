"""Properties of every map, and their names."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import pytest
import torch

from captioning.data.vocabulary import BOS, EOS, PAD, UNK
from captioning.errors import InputError
from captioning.maps import (
    MAPS,
    NEEDS_EVIDENCE,
    available_maps,
    default_map,
    head_names,
    known_maps,
    word_maps,
)
from tests.maps.conftest import captioned_batch

FROM_PROBABILITIES = ["gradient", "grad-cam", "occlusion"]


def test_a_map_has_shares_of_the_regions_for_every_word(kind: str) -> None:
    batch = captioned_batch(kind)
    has_evidence = kind in ("lstm", "multi-head")
    names = set(MAPS) if has_evidence else set(MAPS) - NEEDS_EVIDENCE
    for name in (*names, *head_names(batch.model.decoder)):
        maps = word_maps(name, batch)
        assert maps.shape == (2, 2, 4, 4, 4)
        assert not maps.requires_grad
        assert (maps >= 0).all()
        torch.testing.assert_close(maps.sum(dim=(3, 4)).double(), torch.ones(2, 2, 4).double())
    for name in set(MAPS) - names:
        with pytest.raises(InputError, match=f"map {name}: only an LSTM decoder with deep output"):
            word_maps(name, batch)


@pytest.mark.parametrize("name", MAPS)
def test_captions_of_a_batch_have_their_own_maps(name: str) -> None:
    whole = captioned_batch()
    together = word_maps(name, whole)
    for image, caption in ((0, 1), (1, 0)):
        alone = replace(
            whole,
            images=whole.images[image : image + 1],
            annotations=whole.annotations[image : image + 1],
            tokens=whole.tokens[image : image + 1, caption : caption + 1],
        )
        length = int((alone.tokens != PAD).sum()) - 1
        found, expected = word_maps(name, alone)[0, 0, :length], together[image, caption, :length]
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("kind", ["multi-head", "transformer"])
def test_threads_may_compute_maps_by_one_model_at_once(kind: str) -> None:
    batch = captioned_batch(kind)
    names = (*available_maps(batch.model), *head_names(batch.model.decoder))
    expected = [word_maps(name, batch) for name in names]
    with ThreadPoolExecutor(3) as threads:
        found = list(threads.map(partial(word_maps, batch=batch), names * 3))
    for maps, wanted in zip(found, expected * 3, strict=True):
        torch.testing.assert_close(maps, wanted)


@pytest.mark.parametrize("name", FROM_PROBABILITIES)
def test_a_word_that_cannot_be_generated_has_a_uniform_map(name: str) -> None:
    maps = word_maps(name, captioned_batch(tokens=torch.tensor([[[BOS, UNK, 4, EOS]]])))
    assert maps[0, 0, 0].unique().numel() == 1
    assert maps[0, 0, 1:].unique().numel() > 1


def test_the_default_is_attention_evidence_with_a_deep_output(kind: str) -> None:
    expected = "attention-evidence" if kind in ("lstm", "multi-head") else "attention"
    model = captioned_batch(kind).model
    assert default_map(model) == expected
    assert available_maps(model)[0] == expected
    assert available_maps(model) == known_maps(available_maps(model), model)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("saliency", "unknown map 'saliency'; choose from attention, evidence, "),
        ("head 3", "unknown map 'head 3'; choose from attention, evidence, "),
        ("heads", "map heads: the attention of this model has a single head"),
        ("evidence", "map evidence: only an LSTM decoder with deep output"),
    ],
)
def test_a_map_that_a_model_cannot_give_is_refused_by_name(name: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        known_maps([name], captioned_batch("shallow output").model)
