"""Matrix products by the faster of PyTorch's two CPU libraries, oneDNN and MKL.

Equals `torch.nn.Linear` and its gradients. If PyTorch lacks one of the operators below, or on other
devices, PyTorch's own products are used.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from captioning.kernels.compiled import Compiled
from captioning.kernels.processor import is_intels

# TorchInductor's operator for linear layers on CPUs. Eager PyTorch uses MKL for single precision,
# and MKL uses AVX-512 on Intel's processors only: oneDNN is twice as fast on others, and no faster
# on Intel's (docs/benchmarks.md). For other precisions PyTorch uses oneDNN itself.
_ONEDNN: Any = getattr(getattr(torch.ops, "mkldnn", None), "_linear_pointwise", None)

# MKL packs a weight anew for every product; TorchInductor packs it once, beforehand.
_PACKED: Any = getattr(getattr(torch.ops, "mkl", None), "_mkl_reorder_linear_weight", None)
_MULTIPLIED_PACKED: Any = getattr(getattr(torch.ops, "mkl", None), "_mkl_linear", None)

ROWS = 160
"""The number of rows that MKL packs weights for: five captions of 32 photos. Packing costs
smaller products nothing; weights packed for fewer rows would slow larger ones."""

PACKED_WEIGHT = "packed_weight"
"""The attribute of a layer that holds its packed weight."""


def product(x: Float[Tensor, "R I"], weight: Float[Tensor, "O I"]) -> Float[Tensor, "R O"]:
    """The product x W^T, without a gradient."""
    if _is_onednns(x, weight):
        return _multiplied(x, weight, None)
    return x @ weight.t()


def transposed_product(x: Float[Tensor, "R O"], y: Float[Tensor, "R I"]) -> Float[Tensor, "O I"]:
    """The product x^T y, without a gradient; a weight's gradient is such a product."""
    if not _is_onednns(x, y):
        return x.t() @ y
    # oneDNN needs one operand contiguous, and reads the other one transposed as fast.
    if x.shape[1] < y.shape[1]:
        return product(_transposed(x), y.t())
    return product(_transposed(y), x.t()).t()


def linear(
    x: Float[Tensor, "*B I"], weight: Float[Tensor, "O I"], bias: Float[Tensor, "O"] | None = None
) -> Float[Tensor, "*B O"]:
    """The layer x W^T + b."""
    if _is_onednns(x, weight) and not torch.is_autocast_enabled("cpu"):
        return _Linear.apply(x, weight, bias)
    return F.linear(x, weight, bias)


def layer(module: nn.Linear, x: Float[Tensor, "*B I"]) -> Float[Tensor, "*B O"]:
    """The module's output, by its packed weight if it has one and gradients are off."""
    weight = getattr(module, PACKED_WEIGHT, None)
    if weight is None or torch.is_grad_enabled() or torch.is_autocast_enabled("cpu"):
        return linear(x, module.weight, module.bias)
    return _MULTIPLIED_PACKED(x, weight, module.weight, module.bias, x.shape[:-1].numel())


@contextmanager
def packed(modules: Iterable[nn.Linear]) -> Iterator[None]:
    """Pack the weights of layers while the block lasts, for faster MKL products without gradients.

    The weights must not change meanwhile. Weights that are already packed stay as they are. Safe to
    use from several threads: products are the same with packed weights and without.

    Args:
        modules: layers that do many products.
    """
    wanted = [m for m in modules if getattr(m, PACKED_WEIGHT, None) is None and _is_mkls(m.weight)]
    for module in wanted:
        # Not through nn.Module, which would save the packed weight with the parameters.
        module.__dict__[PACKED_WEIGHT] = _PACKED(module.weight.detach(), ROWS)
    try:
        yield
    finally:
        for module in wanted:
            module.__dict__.pop(PACKED_WEIGHT, None)


def _is_onednns(x: Tensor, weight: Tensor) -> bool:
    return bool(
        _ONEDNN is not None
        and x.device.type == "cpu"
        and x.dtype == weight.dtype == torch.float32
        and x.numel() > 0
        and not is_intels()
        and torch.backends.mkldnn.enabled
        and torch.backends.mkldnn.is_available()
    )


def _is_mkls(weight: Tensor) -> bool:
    return bool(
        _PACKED is not None
        and _MULTIPLIED_PACKED is not None
        and weight.device.type == "cpu"
        and weight.dtype == torch.float32
        and not torch.is_autocast_enabled("cpu")
        and is_intels()
        and torch.backends.mkl.is_available()
    )


def _multiplied(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    # For slices of larger matrices oneDNN uses its reference kernel, a thousand times slower.
    return _ONEDNN(_whole(x), _whole(weight), bias, "none", [], "")


@Compiled
def _transposed(x: Tensor) -> Tensor:
    return x.t().contiguous()


def _whole(x: Tensor) -> Tensor:
    return x if x.is_contiguous() or x.mT.is_contiguous() else x.contiguous()


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _multiplied(x, weight, bias)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        rows = gradient.flatten(0, -2)
        of_x, of_weight, of_bias = ctx.needs_input_grad
        return (
            product(rows, weight.t()).view_as(x) if of_x else None,
            transposed_product(rows, x.flatten(0, -2)) if of_weight else None,
            rows.sum(0) if of_bias else None,
        )
