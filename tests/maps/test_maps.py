"""Properties of every map, and their names."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import pytest
import torch

from captioning.data.vocabulary import BOS, EOS, PAD, UNK
from captioning.maps import (
    MAPS,
    NEEDS_EVIDENCE,
    MapError,
    available_maps,
    default_map,
    head_names,
    resolve_map_names,
    word_maps,
)
from tests.maps.conftest import captioned_batch

FROM_PROBABILITIES = ["gradient", "grad-cam", "occlusion"]
WITHOUT_EVIDENCE = ["shallow output", "transformer", "user's own"]


def test_a_map_has_shares_of_the_regions_for_every_word(kind: str) -> None:
    batch = captioned_batch(kind)
    names = set(MAPS) - NEEDS_EVIDENCE if kind in WITHOUT_EVIDENCE else set(MAPS)
    for name in (*names, *head_names(batch.model.decoder)):
        maps = word_maps(name, batch)
        assert maps.shape == (2, 2, 4, 4, 4)
        assert not maps.requires_grad
        assert (maps >= 0).all()
        torch.testing.assert_close(maps.sum(dim=(3, 4)).double(), torch.ones(2, 2, 4).double())


@pytest.mark.parametrize("name", MAPS)
def test_captions_of_a_batch_have_their_own_maps(name: str) -> None:
    batch = captioned_batch()
    batch_maps = word_maps(name, batch)
    for image, caption in ((0, 1), (1, 0)):
        single = replace(
            batch,
            images=batch.images[image : image + 1],
            annotations=batch.annotations[image : image + 1],
            adapted=batch.adapted[image : image + 1],
            tokens=batch.tokens[image : image + 1, caption : caption + 1],
        )
        length = int((single.tokens != PAD).sum()) - 1
        maps = word_maps(name, single)[0, 0, :length]
        torch.testing.assert_close(maps, batch_maps[image, caption, :length])


@pytest.mark.parametrize("kind", ["multi-head", "transformer"])
def test_threads_may_compute_maps_by_one_model_at_once(kind: str) -> None:
    batch = captioned_batch(kind)
    names = (*available_maps(batch.model), *head_names(batch.model.decoder))
    expected = [word_maps(name, batch) for name in names]
    with ThreadPoolExecutor(3) as threads:
        results = list(threads.map(partial(word_maps, batch=batch), names * 3))
    for maps, expected_maps in zip(results, expected * 3, strict=True):
        torch.testing.assert_close(maps, expected_maps)


@pytest.mark.parametrize("name", FROM_PROBABILITIES)
def test_a_word_that_cannot_be_generated_has_a_uniform_map(name: str) -> None:
    maps = word_maps(name, captioned_batch(tokens=torch.tensor([[[BOS, UNK, 4, EOS]]])))
    assert maps[0, 0, 0].unique().numel() == 1
    assert maps[0, 0, 1:].unique().numel() > 1


def test_the_default_is_attention_evidence_with_a_deep_output(kind: str) -> None:
    expected = "attention" if kind in WITHOUT_EVIDENCE else "attention-evidence"
    model = captioned_batch(kind).model
    assert default_map(model) == expected
    assert available_maps(model)[0] == expected
    assert available_maps(model) == resolve_map_names(available_maps(model), model)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("lstm", "saliency"),
        ("lstm", "heads"),
        ("multi-head", "head 3"),
        *((kind, name) for kind in WITHOUT_EVIDENCE for name in sorted(NEEDS_EVIDENCE)),
    ],
)
def test_a_map_that_a_model_does_not_have_is_refused_by_name(kind: str, name: str) -> None:
    batch = captioned_batch(kind)
    with pytest.raises(MapError, match=name):
        resolve_map_names([name], batch.model)
    with pytest.raises(MapError, match=name):
        word_maps(name, batch)
