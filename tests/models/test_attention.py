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
    MultiHeadAttention,
    masked_softmax,
)

KINDS = [AdditiveAttention, DotProductAttention, HardAttention, MultiHeadAttention]
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


def made(kind: type[Attention], dropout: float) -> Attention:
    """An attention whose parameters do not depend on its dropout; several heads if it may."""
    torch.manual_seed(0)
    options = {"heads": 2} if kind is MultiHeadAttention else {}
    return kind(7, 5, 4, dropout=dropout, **options).double()


@pytest.mark.parametrize("kind", KINDS)
def test_dropout_of_weights_changes_nothing_outside_training(
    kind: type[Attention], query: Tensor, annotations: Tensor
) -> None:
    dropped, plain = made(kind, 0.5).eval(), made(kind, 0.0)
    for part, expected in zip(
        attended(dropped, query, annotations, MASK),
        attended(plain, query, annotations, MASK),
        strict=True,
    ):
        assert part.equal(expected)


def test_no_dropout_draws_no_numbers(query: Tensor, annotations: Tensor) -> None:
    attention = made(AdditiveAttention, 0.0).train()
    before = torch.get_rng_state()
    context, weights = attended(attention, query, annotations, MASK)
    assert torch.get_rng_state().equal(before)
    assert context.equal(weights @ annotations)


@pytest.mark.parametrize("kind", KINDS)
def test_dropped_weights_make_contexts_and_are_not_shown(
    kind: type[Attention], query: Tensor, annotations: Tensor
) -> None:
    plain = attended(made(kind, 0.0), query, annotations, MASK)
    many = query[:, :1].expand(-1, 40_000, -1)
    context, weights = attended(made(kind, 0.3).train(), many, annotations, MASK)
    assert weights.allclose(plain.weights[:, :1])
    assert weights.sum(dim=2).allclose(torch.ones_like(weights[..., 0]))
    assert not context[:, 0].allclose(plain.context[:, 0])
    torch.testing.assert_close(context.mean(dim=1), plain.context[:, 0], rtol=0.0, atol=0.02)


def test_undrawn_contexts_of_hard_attention_are_of_dropped_weights(
    query: Tensor, annotations: Tensor
) -> None:
    hard = made(HardAttention, 0.5).train()
    weights = attended(hard, query, annotations).weights
    draws = torch.tensor([[True, False]] * 3)
    context, _ = hard.drawn(weights, annotations, draws)
    is_region = (context[:, :, None] == annotations[:, None]).all(dim=3).any(dim=2)
    assert is_region.equal(draws)
    assert not context[:, 1].allclose((weights @ annotations)[:, 1])


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
