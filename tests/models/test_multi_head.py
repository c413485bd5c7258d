"""Multi-head attention against PyTorch's, with the same parameters."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from captioning.models.attention import MultiHead

ROWS, QUERIES, KEYS, WIDTH, HEADS = 3, 4, 4, 6, 2


def numbers(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.double, generator=generator).requires_grad_()


def some_of_each_query() -> Tensor:
    """An arbitrary mask that shows each query something."""
    mask = torch.rand(ROWS, QUERIES, KEYS, generator=torch.Generator().manual_seed(1)) < 0.5
    mask[..., 0] |= ~mask.any(dim=-1)
    return mask


CAUSAL = torch.ones(1, QUERIES, QUERIES, dtype=torch.bool).tril()
PADDING = torch.tensor([[True] * 4, [True, False, True, False], [True] + [False] * 3])
MASKS: dict[str, Tensor | None] = {
    "all": None,
    "padding": PADDING[:, None],
    "causal": CAUSAL,
    "of each query": some_of_each_query(),
    "padding and causal": PADDING[:, None] & CAUSAL,
}
every_mask = pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)


def ours_and_torchs(key_dim: int = WIDTH) -> tuple[MultiHead, nn.MultiheadAttention]:
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(
        WIDTH, HEADS, kdim=key_dim, vdim=key_dim, batch_first=True, dtype=torch.double
    )
    for parameter in theirs.parameters():
        nn.init.normal_(parameter)
    ours = MultiHead(WIDTH, HEADS, key_dim=key_dim).double()
    ours.load_state_dict(as_ours(theirs, dict(theirs.named_parameters())))
    return ours, theirs


def as_ours(theirs: nn.MultiheadAttention, values: dict[str, Any]) -> dict[str, Tensor]:
    """PyTorch's parameters, or their gradients, by our names."""
    names = "query", "key", "value"
    if theirs.in_proj_weight is None:
        weights = [values[f"{name[0]}_proj_weight"] for name in names]
    else:
        weights = values["in_proj_weight"].chunk(3)
    found = {f"{name}.weight": weight for name, weight in zip(names, weights, strict=True)}
    biases = values["in_proj_bias"].chunk(3)
    found |= {f"{name}.bias": bias for name, bias in zip(names, biases, strict=True)}
    return found | {f"output.{part}": values[f"out_proj.{part}"] for part in ("weight", "bias")}


def exact(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)


def compared(
    ours: nn.Module,
    theirs: nn.Module,
    outputs: tuple[Tensor, Tensor],
    inputs: list[Tensor],
    by_our_names: Callable[[Any, dict[str, Any]], dict[str, Tensor]],
) -> None:
    """Equal outputs, and equal gradients by inputs and parameters."""
    exact(*outputs)
    goal = numbers(*outputs[0].shape, seed=9).detach()
    found, expected = (
        torch.autograd.grad((output * goal).sum(), [*inputs, *layer.parameters()])
        for output, layer in zip(outputs, (ours, theirs), strict=True)
    )
    n = len(inputs)
    for gradient, wanted in zip(found[:n], expected[:n], strict=True):
        exact(gradient, wanted)
    names = [name for name, _ in theirs.named_parameters()]
    by_name = by_our_names(theirs, dict(zip(names, expected[n:], strict=True)))
    for (name, _), gradient in zip(ours.named_parameters(), found[n:], strict=True):
        exact(gradient, by_name.pop(name))
    assert not by_name


@every_mask
@pytest.mark.parametrize("with_weights", [True, False], ids=["weights", "fused"])
@pytest.mark.parametrize("key_dim", [WIDTH, 5], ids=["one width", "two widths"])
def test_it_is_torchs(mask: Tensor | None, with_weights: bool, key_dim: int) -> None:
    ours, theirs = ours_and_torchs(key_dim)
    inputs = [numbers(ROWS, QUERIES, WIDTH), numbers(ROWS, KEYS, key_dim, seed=2)]
    context, weights = ours(inputs[0], ours.project(inputs[1]), mask, with_weights)
    hidden = None if mask is None else ~mask.expand(ROWS, QUERIES, KEYS)
    expected, expected_weights = theirs(
        *inputs,
        inputs[1],
        attn_mask=None if hidden is None else hidden.repeat_interleave(HEADS, dim=0),
        need_weights=with_weights,
        average_attn_weights=False,
    )
    assert (weights is None) == (not with_weights)
    if weights is not None:
        exact(weights, expected_weights)
    compared(ours, theirs, (context, expected), inputs, as_ours)
