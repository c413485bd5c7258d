import pytest
import torch
from torch import Tensor

from captioning.kernels.fast_lstm import FastLSTM
from captioning.models import (
    AdditiveAttention,
    ArgmaxHardAttention,
    HardAttention,
    LSTMDecoder,
)
from captioning.models.attention import Attended
from captioning.models.hard_attention import Draws

MASK = torch.tensor([[True, True, False, True, False, False], [True] * 6, [False] * 5 + [True]])
NONE, ALL = torch.zeros(3, dtype=torch.bool), torch.ones(3, dtype=torch.bool)


@pytest.fixture
def attention() -> HardAttention:
    torch.manual_seed(0)
    return HardAttention(query_dim=7, annotation_dim=5, attention_dim=4).double()


@pytest.fixture
def query() -> Tensor:
    """Two captions for each of three images: (3, 2, 7)."""
    return torch.randn(3, 2, 7, dtype=torch.double, generator=torch.Generator().manual_seed(4))


def attended(
    attention: AdditiveAttention, query: Tensor, annotations: Tensor, mask: Tensor | None = None
) -> Attended:
    return attention(query, attention.project(annotations), annotations, mask)


def drawn(
    attention: HardAttention,
    query: Tensor,
    annotations: Tensor,
    expected: Tensor = NONE,
    mask: Tensor | None = None,
) -> tuple[Attended, Draws]:
    torch.manual_seed(5)
    with attention.drawing(expected) as draws:
        return attended(attention, query, annotations, mask), draws


def soft_of(attention: HardAttention) -> AdditiveAttention:
    """Soft attention with the same parameters."""
    soft = AdditiveAttention(7, 5, 4).double()
    soft.load_state_dict(attention.state_dict())
    return soft


@pytest.mark.parametrize("mask", [None, MASK], ids=["all regions", "masked"])
def test_where_it_does_not_draw_it_is_soft_attention(
    attention: HardAttention, query: Tensor, annotations: Tensor, mask: Tensor | None
) -> None:
    soft = attended(soft_of(attention), query, annotations, mask)
    hard = attended(attention, query, annotations, mask)
    assert hard.context.equal(soft.context)
    assert hard.weights.equal(soft.weights)


def test_a_drawn_context_is_one_annotation_vector_and_its_log_weight_is_kept(
    attention: HardAttention, query: Tensor, annotations: Tensor
) -> None:
    hard, draws = drawn(attention, query, annotations)
    [log_probs] = draws.log_probs
    for b in range(3):
        for n in range(2):
            [[region]] = (annotations[b] == hard.context[b, n]).all(dim=1).nonzero().tolist()
            torch.testing.assert_close(log_probs[b, n], hard.weights[b, n, region].log())


def test_images_may_get_the_expected_context_instead(
    attention: HardAttention, query: Tensor, annotations: Tensor
) -> None:
    expected = torch.tensor([False, True, False])
    hard, draws = drawn(attention, query, annotations, expected)
    soft = attended(soft_of(attention), query, annotations)
    assert (hard.context == soft.context).all(dim=2).all(dim=1).equal(expected)
    assert (draws.log_probs[0] == 0).all(dim=1).equal(expected)


def test_regions_are_drawn_as_often_as_they_weigh(
    attention: HardAttention, query: Tensor, annotations: Tensor
) -> None:
    many = query[:, :1].expand(-1, 20_000, -1)
    hard, _ = drawn(attention, many, annotations, mask=MASK)
    for b in range(3):
        chosen = (hard.context[b, :, None] == annotations[b]).all(dim=2).double()
        torch.testing.assert_close(chosen.mean(0), hard.weights[b, 0], rtol=0.0, atol=0.015)
        assert (chosen.sum(0)[~MASK[b]] == 0).all()


def test_the_gradient_of_a_drawn_context_reaches_its_region_alone(
    attention: HardAttention, query: Tensor, annotations: Tensor
) -> None:
    annotations.requires_grad_()
    hard, _ = drawn(attention, query, annotations)
    hard.context.sum().backward()
    assert annotations.grad is not None
    assert annotations.grad.sum(dim=(1, 2)).tolist() == [2 * 5.0] * 3
    assert attention.energy.weight.grad is None or not attention.energy.weight.grad.any()


def test_drawing_ends_with_its_block_and_on_an_error(
    attention: HardAttention, query: Tensor, annotations: Tensor
) -> None:
    before = attended(attention, query, annotations).context
    with pytest.raises(KeyError), attention.drawing(NONE):
        raise KeyError
    assert attended(attention, query, annotations).context.equal(before)


@pytest.mark.parametrize("mask", [None, MASK], ids=["all regions", "masked"])
def test_arg_max_looks_at_the_region_of_the_largest_weight(
    query: Tensor, annotations: Tensor, mask: Tensor | None
) -> None:
    torch.manual_seed(0)
    attention = ArgmaxHardAttention(7, 5, 4).double()
    context, weights = attended(attention, query, annotations, mask)
    torch.testing.assert_close(weights.sum(dim=2), torch.ones(3, 2, dtype=torch.double))
    for b in range(3):
        assert context[b].equal(annotations[b, weights[b].argmax(dim=1)])


def test_arg_max_draws_as_the_other_does(
    attention: HardAttention, query: Tensor, annotations: Tensor
) -> None:
    arg_max = ArgmaxHardAttention(7, 5, 4).double()
    arg_max.load_state_dict(attention.state_dict())
    for expected in (NONE, ALL):
        first, _ = drawn(attention, query, annotations, expected)
        second, _ = drawn(arg_max, query, annotations, expected)
        assert second.context.equal(first.context)


@pytest.mark.parametrize("kind", [HardAttention, ArgmaxHardAttention])
def test_hard_attention_is_computed_plainly(kind: type[HardAttention]) -> None:
    decoder = LSTMDecoder(5, 8, 6, 7, 4, attention=kind)
    assert FastLSTM.why_not(decoder) is not None
