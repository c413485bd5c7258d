from dataclasses import replace

import pytest
import torch
from jaxtyping import Int
from torch import Tensor

from captioning.data.vocabulary import BOS, EOS, PAD
from captioning.evaluation.grounding.faithfulness import (
    LEVELS,
    curve_areas,
    occlusion_drops,
    probabilities,
)
from captioning.evaluation.grounding.mentions import (
    AT_RANDOM,
    ATTENDED,
    DELETION,
    INSERTION,
    MODEL,
    PROBABILITY,
    named,
)
from captioning.models import Decoder, LSTMDecoder
from captioning.models.decoder import Memory, State, Step

TOKENS = torch.tensor(
    [[BOS, 4, 5, 6, EOS, PAD], [BOS, 5, 4, EOS, PAD, PAD], [BOS, 7, 6, 5, 4, EOS]]
)
PHRASES = [(0, 0, 1), (0, 1, 3), (1, 1, 2), (2, 3, 4)]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def peaked(regions: int) -> Tensor:
    """Weights of each phrase that lie on its second region by 0.9."""
    weights = torch.full((len(PHRASES), regions), 0.1 / (regions - 1), dtype=torch.double)
    weights[:, 1] = 0.9
    return weights


class Blind(Decoder):
    """Scores words by the last one alone, whatever the photo shows."""

    def start(self, memory: Memory, n: int) -> State:
        return {}

    def step(self, tokens: Int[Tensor, "B N"], state: State, memory: Memory) -> Step:
        logits = torch.eye(self.vocab_size, dtype=torch.double)[tokens]
        regions = memory.annotations.shape[1]
        weights = torch.full((*tokens.shape, regions), 1 / regions, dtype=torch.double)
        return Step(logits, weights, state)


class Naming(Blind):
    """Gives the next words odds by the largest annotation that it may attend to."""

    def step(self, tokens: Int[Tensor, "B N"], state: State, memory: Memory) -> Step:
        seen = memory.annotations[..., 0]
        if memory.mask is not None:
            seen = seen.masked_fill(~memory.mask, 0.0)
        logits = torch.zeros(*tokens.shape, self.vocab_size, dtype=torch.double)
        logits[..., 4] = seen.amax(dim=1)[:, None]
        return replace(super().step(tokens, state, memory), logits=logits)


def test_a_decoder_that_ignores_its_context_loses_nothing(annotations: Tensor) -> None:
    blind, maps = Blind(5, 8), {MODEL: torch.rand(len(PHRASES), 6, dtype=torch.double)}
    drops = occlusion_drops(blind, annotations, TOKENS, PHRASES, peaked(6), (2, 3), generator())
    areas = curve_areas(blind, annotations, TOKENS, PHRASES, maps)
    for found, under in zip(drops, areas, strict=True):
        whole, *fallen = found.values()
        assert whole > 0
        assert fallen == pytest.approx([0, 0, 0], abs=1e-12)
        assert [*under.values()] == pytest.approx([whole, whole, 0])


def test_hiding_the_one_region_that_matters_removes_its_effect() -> None:
    annotations = torch.zeros(1, 100, 5, dtype=torch.double)
    annotations[0, 1, 0] = 3.0
    tokens = torch.tensor([[BOS, 4, EOS]])
    [found] = occlusion_drops(
        Naming(5, 8), annotations, tokens, [(0, 0, 1)], peaked(100)[:1], (10, 10), generator()
    )
    # Of eight words PAD, BOS and UNK are never generated.
    whole, without = torch.tensor([3.0, 0.0]).double().exp().unbind()
    assert found[PROBABILITY] == pytest.approx((whole / (whole + 4)).item())
    assert found[ATTENDED] == pytest.approx((whole / (whole + 4) - without / 5).item())
    assert found[AT_RANDOM] == pytest.approx(0, abs=1e-12)


def test_a_phrases_probability_is_that_of_its_words_in_turn(
    decoder: Decoder, annotations: Tensor
) -> None:
    found = occlusion_drops(decoder, annotations, TOKENS, PHRASES, peaked(6), (2, 3), generator())
    logits, _ = decoder(annotations, TOKENS[:, None, :-1])
    logits[..., [PAD, BOS, 3]] = -torch.inf
    shares = logits[:, 0].softmax(dim=-1)
    expected = (shares[0, 1, 5] * shares[0, 2, 6]).item()
    assert found[1][PROBABILITY] == pytest.approx(expected)


def test_the_fewest_regions_that_hold_half_the_map_are_hidden(
    decoder: Decoder, annotations: Tensor
) -> None:
    weights = torch.tensor([[0.1, 0.3, 0.1, 0.1, 0.3, 0.1]], dtype=torch.double)
    [found] = occlusion_drops(
        decoder, annotations, TOKENS, [(2, 0, 1)], weights, (2, 3), generator()
    )
    mask = torch.tensor([[True, False, True, True, False, True]])
    shares = []
    for seen in (None, mask):
        logits, _ = decoder(annotations[2:], TOKENS[2:, None, :1], seen)
        logits[..., [PAD, BOS, 3]] = -torch.inf
        shares.append(logits[0, 0, 0].softmax(dim=-1)[7].item())
    assert found[ATTENDED] == pytest.approx(shares[0] - shares[1])


def test_a_batch_of_phrases_equals_its_phrases_one_by_one(
    decoder: Decoder, annotations: Tensor
) -> None:
    weights, shared = peaked(6), generator()
    together = occlusion_drops(decoder, annotations, TOKENS, PHRASES, weights, (2, 3), generator())
    alone = [
        occlusion_drops(decoder, annotations, TOKENS, [phrase], weights[n : n + 1], (2, 3), shared)[
            0
        ]
        for n, phrase in enumerate(PHRASES)
    ]
    for one, other in zip(together, alone, strict=True):
        assert one == pytest.approx(other)


def test_at_least_one_region_is_never_hidden(lstm: LSTMDecoder, annotations: Tensor) -> None:
    one = annotations[:, :1]
    weights = torch.ones(len(PHRASES), 1, dtype=torch.double)
    for found in occlusion_drops(lstm, one, TOKENS, PHRASES, weights, (1, 1), generator()):
        assert [*found.values()][1:] == pytest.approx([0, 0, 0], abs=1e-12)


def test_the_map_of_the_one_region_is_best_its_opposite_worst() -> None:
    # By hand: one of twelve regions gives the word its odds, so each curve has two heights.
    annotations = torch.zeros(1, 12, 5, dtype=torch.double)
    annotations[0, 7, 0] = 3.0
    right = torch.zeros(12, dtype=torch.double)
    right[7] = 1.0
    tokens = torch.tensor([[BOS, 4, EOS]])
    maps = {"best": right[None], "worst": -right[None]}
    [areas] = curve_areas(Naming(5, 8), annotations, tokens, [(0, 0, 1)], maps)
    with_it = torch.tensor(3.0).double().exp().item()
    high, low = with_it / (with_it + 4), 1 / 5
    steps = LEVELS - 1
    # Best: the region is the first to go and the first to come.
    assert areas[named(DELETION, "best")] == pytest.approx(
        ((high + low) / 2 + (steps - 1) * low) / steps
    )
    assert areas[named(INSERTION, "best")] == pytest.approx(high)
    # Worst: it stays to the end, and comes last.
    assert areas[named(DELETION, "worst")] == pytest.approx(high)
    assert areas[named(INSERTION, "worst")] == pytest.approx(
        ((high + low) / 2 + (steps - 1) * low) / steps
    )


def test_curves_equal_reading_with_what_is_left(decoder: LSTMDecoder, annotations: Tensor) -> None:
    order = torch.tensor([[0.5, 0.1, 0.4, 0.3, 0.2, 0.0]], dtype=torch.double)  # 0 2 3 4 1 5
    [found] = curve_areas(decoder, annotations, TOKENS, [(2, 3, 4)], {MODEL: order})
    heights: dict[str, list[float]] = {"deletion": [], "insertion": []}
    for hidden in ([], [0], [0, 2], [0, 2, 3], [0, 2, 3, 4], [0, 2, 3, 4, 1]):
        for name, is_left in (("deletion", False), ("insertion", True)):
            mask = torch.full((1, 6), not is_left)
            mask[0, hidden] = is_left
            if is_left and not hidden:
                mask[:] = True  # the last height, when all are shown
            heights[name] += probabilities(decoder, annotations, TOKENS, [(2, 3, 4)], mask).tolist()
    heights["insertion"].append(heights["insertion"].pop(0))
    for name, curve in heights.items():
        expected = torch.trapezoid(torch.tensor(curve, dtype=torch.double)).item() / 5
        assert found[name] == pytest.approx(expected)
