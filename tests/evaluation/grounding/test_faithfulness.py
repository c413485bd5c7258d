from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from jaxtyping import Int
from torch import Tensor, nn

from captioning.data.vocabulary import BOS, EOS, PAD
from captioning.evaluation.grounding.faithfulness import (
    DRAWS,
    LEVELS,
    Span,
    SpanReader,
    curve_areas,
    occlusion_drops,
)
from captioning.evaluation.grounding.targets import AT_RANDOM, ATTENDED
from captioning.models import Decoder, LSTMDecoder
from captioning.models.decoder import Memory, State, Step

TOKENS = torch.tensor(
    [[BOS, 4, 5, 6, EOS, PAD], [BOS, 5, 4, EOS, PAD, PAD], [BOS, 7, 6, 5, 4, EOS]]
)
SPANS = [Span(0, 0, 1), Span(0, 1, 3), Span(1, 1, 2), Span(2, 3, 4)]
ONE_WORD = torch.tensor([[BOS, 4, EOS]]), [Span(0, 0, 1)]


def reader(
    model: nn.Module,
    annotations: Tensor,
    tokens: Tensor = TOKENS,
    spans: Sequence[Span] = SPANS,
) -> SpanReader:
    return SpanReader(model, annotations, tokens, spans)


def drops(read: SpanReader, weights: Tensor, grid: tuple[int, int] = (2, 3)) -> dict[str, Tensor]:
    noise = torch.rand(len(weights), DRAWS, weights.shape[1], generator=torch.manual_seed(0))
    return occlusion_drops(read, weights, grid=grid, noise=noise)


def peaked(regions: int, spans: int = len(SPANS)) -> Tensor:
    """Weights of each span that lie on its second region by 0.9."""
    weights = torch.full((spans, regions), 0.1 / (regions - 1), dtype=torch.double)
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
        visible = memory.annotations[..., 0]
        if memory.mask is not None:
            visible = visible.masked_fill(~memory.mask, 0.0)
        logits = torch.zeros(*tokens.shape, self.vocab_size, dtype=torch.double)
        logits[..., 4] = visible.amax(dim=1)[:, None]
        return replace(super().step(tokens, state, memory), logits=logits)


def test_a_decoder_that_ignores_its_context_loses_nothing(annotations: Tensor) -> None:
    read, maps = reader(Blind(5, 8), annotations), torch.rand(len(SPANS), 6, dtype=torch.double)
    probability, *span_drops = drops(read, peaked(6)).values()
    assert (probability > 0).all()
    for drop in span_drops:
        torch.testing.assert_close(drop, torch.zeros_like(drop), rtol=0, atol=1e-12)
    areas = curve_areas(read, {"model": maps})
    torch.testing.assert_close(
        [*areas.values()], [probability, probability, torch.zeros_like(probability)]
    )


def test_hiding_the_one_region_that_matters_removes_its_effect() -> None:
    annotations = torch.zeros(1, 100, 5, dtype=torch.double)
    annotations[0, 1, 0] = 3.0
    values = drops(reader(Naming(5, 8), annotations, *ONE_WORD), peaked(100, 1), (10, 10))
    # Of eight words PAD, BOS and UNK are never generated.
    odds, occluded_odds = torch.tensor([3.0, 0.0]).double().exp()
    assert values["probability"].item() == pytest.approx((odds / (odds + 4)).item())
    assert values[ATTENDED].item() == pytest.approx((odds / (odds + 4) - occluded_odds / 5).item())
    assert values[AT_RANDOM].item() == pytest.approx(0, abs=1e-12)


def shares(decoder: Decoder, annotations: Tensor, tokens: Tensor, mask: Tensor | None) -> Tensor:
    """The probabilities of the words after each token, of one caption per image."""
    logits, _ = decoder(annotations, tokens[:, None, :-1], mask)
    logits[..., [PAD, BOS, 3]] = -torch.inf
    return logits[:, 0].softmax(dim=-1)


def test_a_spans_probability_is_that_of_its_words_in_turn(
    decoder: Decoder, annotations: Tensor
) -> None:
    probabilities = drops(reader(decoder, annotations), peaked(6))["probability"]
    words = shares(decoder, annotations, TOKENS, None)[0]
    assert probabilities[1].item() == pytest.approx((words[1, 5] * words[2, 6]).item())


def test_the_fewest_regions_that_hold_half_the_map_are_hidden(
    decoder: Decoder, annotations: Tensor
) -> None:
    weights = torch.tensor([[0.1, 0.3, 0.1, 0.1, 0.3, 0.1]], dtype=torch.double)
    drop = drops(reader(decoder, annotations, TOKENS, [Span(2, 0, 1)]), weights)[ATTENDED]
    mask = torch.tensor([[True, False, True, True, False, True]])
    visible, occluded = (
        shares(decoder, annotations[2:], TOKENS[2:], region_mask)[0, 0, 7].item()
        for region_mask in (None, mask)
    )
    assert drop.item() == pytest.approx(visible - occluded)


def test_a_batch_of_spans_equals_its_spans_one_by_one(
    decoder: Decoder, annotations: Tensor
) -> None:
    visible = torch.rand(len(SPANS), 3, 6, generator=torch.manual_seed(0)) < 0.7
    visible[..., 0] = True
    together = reader(decoder, annotations).probabilities(visible)
    for number, span in enumerate(SPANS):
        alone = reader(decoder, annotations, TOKENS, [span]).probabilities(
            visible[number : number + 1]
        )
        torch.testing.assert_close(alone[0], together[number])


def test_at_least_one_region_is_never_hidden(lstm: LSTMDecoder, annotations: Tensor) -> None:
    weights = torch.ones(len(SPANS), 1, dtype=torch.double)
    _, *span_drops = drops(reader(lstm, annotations[:, :1]), weights, (1, 1)).values()
    torch.testing.assert_close(torch.stack(span_drops), torch.zeros(3, len(SPANS)).double())


def test_the_map_of_the_one_region_is_best_its_opposite_worst() -> None:
    # By hand: one of twelve regions gives the word its odds, so each curve has two heights.
    annotations = torch.zeros(1, 12, 5, dtype=torch.double)
    annotations[0, 7, 0] = 3.0
    weights = torch.zeros(1, 12, dtype=torch.double)
    weights[0, 7] = 1.0
    read = reader(Naming(5, 8), annotations, *ONE_WORD)
    areas = curve_areas(read, {"best": weights, "worst": -weights})
    with_it = torch.tensor(3.0).double().exp().item()
    high, low, steps = with_it / (with_it + 4), 1 / 5, LEVELS - 1
    once = pytest.approx(((high + low) / 2 + (steps - 1) * low) / steps)
    # Best: the region is the first to go and the first to come.
    assert areas["deletion, best"].item() == once
    assert areas["insertion, best"].item() == pytest.approx(high)
    # Worst: it stays to the end, and comes last.
    assert areas["deletion, worst"].item() == pytest.approx(high)
    assert areas["insertion, worst"].item() == once


def test_curves_equal_reading_with_what_is_left(decoder: LSTMDecoder, annotations: Tensor) -> None:
    order = torch.tensor([[0.5, 0.1, 0.4, 0.3, 0.2, 0.0]], dtype=torch.double)  # 0 2 3 4 1 5
    read = reader(decoder, annotations, TOKENS, [Span(2, 3, 4)])
    areas = curve_areas(read, {"model": order})
    rank = torch.tensor([0, 4, 1, 2, 3, 5])
    for name, masks in {
        "deletion": [rank >= count for count in range(6)],
        "insertion": [rank < count for count in range(1, 7)],
    }.items():
        heights = read.probabilities(torch.stack(masks)[None])
        assert areas[name].item() == pytest.approx(torch.trapezoid(heights).item() / 5)
