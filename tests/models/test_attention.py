import math

import pytest
import torch
from jaxtyping import TypeCheckError
from torch import Tensor
from torch.nn import functional as F

from captioning.models.attention import (
    AdditiveAttention,
    Attended,
    Attention,
    DotProductAttention,
    masked_softmax,
)

MASK = torch.tensor([[True, True, False, True, False, False], [True] * 6, [False] * 5 + [True]])


@pytest.fixture(params=[AdditiveAttention, DotProductAttention])
def attention(request: pytest.FixtureRequest) -> Attention:
    torch.manual_seed(0)
    made: Attention = request.param(query_dim=7, annotation_dim=5, attention_dim=4).double()
    return made


@pytest.fixture
def query() -> Tensor:
    """Two captions for each of three images: (3, 2, 7)."""
    return torch.randn(3, 2, 7, dtype=torch.double, generator=torch.Generator().manual_seed(4))


def attended(
    attention: Attention, query: Tensor, annotations: Tensor, mask: Tensor | None = None
) -> Attended:
    return attention(query, attention.project(annotations), annotations, mask)


def test_weights_sum_to_one(attention: Attention, query: Tensor, annotations: Tensor) -> None:
    weights = attended(attention, query, annotations, MASK).weights
    assert weights.shape == (3, 2, 6)
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(3, 2, dtype=torch.double))


def test_masked_regions_weigh_exactly_zero(
    attention: Attention, query: Tensor, annotations: Tensor
) -> None:
    weights = attended(attention, query, annotations, MASK).weights
    assert (weights.transpose(1, 2)[~MASK] == 0).all()
    assert (weights.transpose(1, 2)[MASK] > 0).all()


def test_the_context_is_the_expected_annotation(
    attention: Attention, query: Tensor, annotations: Tensor
) -> None:
    context, weights = attended(attention, query, annotations)
    for b in range(3):
        for n in range(2):
            expected = sum(weights[b, n, region] * annotations[b, region] for region in range(6))
            torch.testing.assert_close(context[b, n], expected)


def test_many_queries_equal_single_calls(
    attention: Attention, query: Tensor, annotations: Tensor
) -> None:
    together = attended(attention, query, annotations, MASK)
    for n in range(2):
        alone = attended(attention, query[:, n : n + 1], annotations, MASK)
        torch.testing.assert_close(together.context[:, n : n + 1], alone.context)
        torch.testing.assert_close(together.weights[:, n : n + 1], alone.weights)


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


@pytest.mark.parametrize("large", [1e4, -1e4])
def test_large_scores_give_weights_and_no_nan(large: float) -> None:
    weights = masked_softmax(torch.full((3, 1, 6), large), MASK)
    expected = MASK / MASK.sum(dim=1, keepdim=True)
    torch.testing.assert_close(weights[:, 0], expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.half])
def test_weights_of_half_precision_scores_still_sum_to_one(dtype: torch.dtype) -> None:
    weights = masked_softmax(torch.linspace(-3, 3, 196, dtype=dtype).view(1, 1, -1))
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(1, 1))


def test_while_tests_run_wrong_ranks_and_sizes_that_differ_are_refused(
    query: Tensor, annotations: Tensor
) -> None:
    attention = AdditiveAttention(7, 5, 4).double()
    with pytest.raises(TypeCheckError):
        attended(attention, query[0], annotations)
    with pytest.raises(TypeCheckError):
        attention(query, attention.project(annotations)[:, 1:], annotations)
