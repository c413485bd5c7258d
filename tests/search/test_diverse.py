"""Diverse beam search against plain beam search and a search written out."""

from typing import Any

import pytest
import torch
from torch import Tensor

from captioning.data.vocabulary import BOS, EOS, PAD, UNK
from captioning.models import Decoder
from captioning.search import BeamSearch, DiverseBeamSearch
from tests.search.test_decoding import searched

LIMITS: dict[str, Any] = {"max_length": 6, "length_penalty": 0.7}


@pytest.mark.parametrize(
    ("groups", "diversity", "width"), [(1, 0.5, 4), (3, 0.0, 3)], ids=["one group", "no cost"]
)
def test_one_group_or_groups_without_a_cost_are_beam_search(
    decoder: Decoder, annotations: Tensor, groups: int, diversity: float, width: int
) -> None:
    plain = searched(BeamSearch(width, **LIMITS), decoder, annotations)
    diverse = DiverseBeamSearch(groups=groups, diversity=diversity, width=width, **LIMITS)
    found = searched(diverse, decoder, annotations)
    assert found.tokens.equal(plain.tokens[:, :groups])
    for part, wanted in zip(found, plain, strict=True):
        torch.testing.assert_close(part, wanted[:, :groups])


def greedy_in_groups(decoder: Decoder, annotations: Tensor, groups: int, cost: float) -> Tensor:
    """The captions of one image, word by word, each group after those before it: (G, T)."""
    memory, written = decoder.remember(annotations), torch.full((groups, 6), PAD)
    for group in range(groups):
        state, last = decoder.start(memory, 1), BOS
        for place in range(6):
            step = decoder.step(torch.tensor([[last]]), state, memory)
            step.logits[..., [PAD, BOS, UNK] + [EOS] * (place == 0)] = -torch.inf
            log_probs = step.logits[0, 0].log_softmax(0)
            for word in written[:group, place].tolist():
                log_probs[word] -= cost
            last, state = int(log_probs.argmax()), step.state
            written[group, place] = last
            if last == EOS:
                break
    return written


@pytest.mark.parametrize("cost", [0.3, 1.5])
def test_groups_of_one_are_greedy_searches_written_out(
    decoder: Decoder, annotations: Tensor, cost: float
) -> None:
    search = DiverseBeamSearch(groups=3, diversity=cost, width=1, max_length=6)
    for b in range(3):
        found = searched(search, decoder, annotations[b : b + 1])
        wanted = greedy_in_groups(decoder, annotations[b : b + 1], 3, cost)
        expected = {tuple(row.tolist()) for row in wanted}
        filled = found.tokens[0][found.scores[0].isfinite()]
        padded = torch.nn.functional.pad(filled, (0, 6 - filled.shape[1]))
        assert {tuple(row.tolist()) for row in padded} == expected
