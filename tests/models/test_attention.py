import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from captioning.models.attention import (
    AdditiveAttention,
    Attended,
    Attention,
    DotProductAttention,
    HardAttention,
    masked_softmax,
)

MASK = torch.tensor([[True, True, False, True, False, False], [True] * 6, [False] * 5 + [True]])


@pytest.fixture
def query() -> Tensor:
    """Two captions for each of three images: (3, 2, 7)."""
    return torch.randn(3, 2, 7, dtype=torch.double, generator=torch.Generator().manual_seed(4))


def attended(
    attention: Attention, query: Tensor, annotations: Tensor, mask: Tensor | None = None
) -> Attended:
    return attention(query, attention.project(annotations), annotations, mask)


def test_additive_attention_is_its_formula_written_out(query: Tensor, annotations: Tensor) -> None:
    torch.manual_seed(0)
    attention = AdditiveAttention(7, 5, 4).double()
    weights = attended(attention, query, annotations).weights
    for b in range(3):
        for n in range(2):
            energies = [
                torch.dot(
                    attention.energy.weight[0],
                    torch.tanh(
                        attention.key.weight @ annotations[b, region]
                        + attention.key.bias
                        + attention.query.weight @ query[b, n]
                    ),
                )
                for region in range(6)
            ]
            exponentials = [math.exp(energy.item()) for energy in energies]
            expected = torch.tensor(exponentials, dtype=torch.double) / sum(exponentials)
            torch.testing.assert_close(weights[b, n], expected)


def test_dot_product_attention_is_torchs(query: Tensor, annotations: Tensor) -> None:
    torch.manual_seed(0)
    attention = DotProductAttention(7, 5, 4).double()
    keys = attention.project(annotations)
    expected = F.scaled_dot_product_attention(
        attention.query(query), keys, annotations, attn_mask=MASK[:, None]
    )
    torch.testing.assert_close(attention(query, keys, annotations, MASK).context, expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.half])
def test_weights_of_half_precision_scores_still_sum_to_one(dtype: torch.dtype) -> None:
    weights = masked_softmax(torch.linspace(-3, 3, 196, dtype=dtype).view(1, 1, -1))
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(1, 1))


@pytest.fixture
def hard() -> HardAttention:
    torch.manual_seed(0)
    return HardAttention(7, 5, 4).double()


def test_a_drawn_context_is_the_vector_of_one_region(
    hard: HardAttention, query: Tensor, annotations: Tensor
) -> None:
    soft, weights = attended(hard, query, annotations)
    draws = torch.tensor([[True, True], [False, True], [False, False]])
    context, log_probs = hard.drawn(weights, annotations, draws)
    for b in range(3):
        for n in range(2):
            same = (annotations[b] == context[b, n]).all(dim=1)
            assert same.sum() == (1 if draws[b, n] else 0)
            expected = weights[b, n, same].log() if draws[b, n] else torch.zeros(1)
            torch.testing.assert_close(log_probs[b, n : n + 1], expected.double())
    assert context[~draws].equal(soft[~draws])


def test_regions_are_drawn_as_often_as_they_weigh(
    hard: HardAttention, query: Tensor, annotations: Tensor
) -> None:
    many = query[:, :1].expand(-1, 20_000, -1)
    weights = attended(hard, many, annotations, MASK).weights
    context, _ = hard.drawn(weights, annotations, torch.ones(3, 20_000, dtype=torch.bool))
    for b in range(3):
        chosen = (context[b, :, None] == annotations[b]).all(dim=2).double()
        torch.testing.assert_close(chosen.mean(0), weights[b, 0], rtol=0.0, atol=0.015)
