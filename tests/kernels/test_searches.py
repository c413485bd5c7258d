"""The searches' kernels against the plain searches."""

from typing import Any

import pytest
import torch
from torch.testing import assert_close

from captioning.kernels import accelerate
from captioning.models import AdditiveAttention, Attention, DotProductAttention
from captioning.search import (
    BeamSearch,
    ConstrainedBeamSearch,
    DiverseBeamSearch,
    Greedy,
    Sampling,
    Search,
)
from tests.kernels.plain_models import EXACT, plain_model

IMAGES = 20
PHOTOS = [str(image).encode() for image in range(IMAGES)]
CONSTRAINED = ConstrainedBeamSearch(begin=[5], avoid=[[6], [7, 8]], must_say=[[9, 4], [8]])
ABLATIONS = {"scalar_gate": False, "deep_output": False}


@pytest.mark.parametrize(
    ("search", "options", "attention"),
    [
        (Greedy(), {}, AdditiveAttention),
        (Greedy(max_length=9, min_length=4, no_repeat_ngram=2), ABLATIONS, DotProductAttention),
        (BeamSearch(5), {}, DotProductAttention),
        (BeamSearch(5), {"query_with_word": True}, AdditiveAttention),
        (BeamSearch(4, length_penalty=0.0), ABLATIONS, AdditiveAttention),
        (BeamSearch(3, max_length=7, min_length=3, no_repeat_ngram=2), {}, AdditiveAttention),
        (BeamSearch(40, max_length=2), {"tie_embeddings": True}, DotProductAttention),
        (CONSTRAINED, {}, AdditiveAttention),
        (DiverseBeamSearch(groups=3, width=2), {}, AdditiveAttention),
        (Sampling(3, top_k=1), {"query_with_word": True}, DotProductAttention),
        (Sampling(3, seed=1).for_images(PHOTOS), {}, AdditiveAttention),
        (Sampling(3, top_k=9, top_p=0.9, seed=1).for_images(PHOTOS), {}, AdditiveAttention),
    ],
    ids=lambda value: repr(getattr(value, "config", value)),
)
def test_captions_and_scores_are_those_of_the_plain_search(
    search: Search, options: dict[str, Any], attention: type[Attention]
) -> None:
    plain = plain_model(attention=attention, vocab_size=30, **options)
    annotations = torch.randn(IMAGES, 4, 5, dtype=torch.double)
    fast = accelerate(plain)
    found = search(fast.decoder, fast.remember(annotations))
    wanted = search(plain.decoder, plain.remember(annotations))
    assert found.tokens.equal(wanted.tokens)
    for part, wanted_part in zip(found, wanted, strict=True):
        assert_close(part, wanted_part, **EXACT)
