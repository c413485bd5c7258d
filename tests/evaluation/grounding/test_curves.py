import pytest
import torch
from torch import Tensor

from captioning.data.vocabulary import BOS, EOS
from captioning.evaluation.grounding.curves import LEVELS, areas
from captioning.evaluation.grounding.faithfulness import probabilities
from captioning.models import LSTMDecoder
from tests.evaluation.grounding.test_faithfulness import PHRASES, TOKENS, Blind, Naming


def test_a_decoder_that_ignores_its_context_has_flat_curves(annotations: Tensor) -> None:
    maps = torch.rand(len(PHRASES), 2, 6, dtype=torch.double)
    blind = Blind(5, 8)
    whole = probabilities(
        blind, annotations, TOKENS, PHRASES, torch.ones(len(PHRASES), 6, dtype=torch.bool)
    )
    for found, probability in zip(
        areas(blind, annotations, TOKENS, PHRASES, maps), whole.tolist(), strict=True
    ):
        for area in found:
            assert area == pytest.approx((probability, probability))


def test_the_map_that_names_the_one_region_is_the_best_and_the_opposite_the_worst() -> None:
    # By hand: one of twelve regions gives the word its odds, so each curve has two heights.
    annotations = torch.zeros(1, 12, 5, dtype=torch.double)
    annotations[0, 7, 0] = 3.0
    right = torch.zeros(12, dtype=torch.double)
    right[7] = 1.0
    tokens = torch.tensor([[BOS, 4, EOS]])
    [[best, worst]] = areas(
        Naming(5, 8), annotations, tokens, [(0, 0, 1)], torch.stack([right, -right])[None]
    )
    with_it = torch.tensor(3.0).double().exp().item()
    high, low = with_it / (with_it + 4), 1 / 5
    steps = LEVELS - 1
    # Best: the region is the first to go and the first to come.
    assert best.deletion == pytest.approx(((high + low) / 2 + (steps - 1) * low) / steps)
    assert best.insertion == pytest.approx(high)
    # Worst: it stays to the end, and comes last.
    assert worst.deletion == pytest.approx(high)
    assert worst.insertion == pytest.approx(((high + low) / 2 + (steps - 1) * low) / steps)


def test_curves_equal_reading_with_what_is_left(decoder: LSTMDecoder, annotations: Tensor) -> None:
    order = torch.tensor([[[0.5, 0.1, 0.4, 0.3, 0.2, 0.0]]], dtype=torch.double)  # 0 2 3 4 1 5
    [[found]] = areas(decoder, annotations, TOKENS, [(2, 3, 4)], order)
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
        assert getattr(found, name) == pytest.approx(expected)


def test_an_image_of_one_region_keeps_it(lstm: LSTMDecoder, annotations: Tensor) -> None:
    one = annotations[:, :1]
    maps = torch.ones(len(PHRASES), 1, 1, dtype=torch.double)
    mask = torch.ones(len(PHRASES), 1, dtype=torch.bool)
    whole = probabilities(lstm, one, TOKENS, PHRASES, mask).tolist()
    for [found], probability in zip(areas(lstm, one, TOKENS, PHRASES, maps), whole, strict=True):
        assert found == pytest.approx((probability, probability))
