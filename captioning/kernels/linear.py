"""Linear layers by the faster of PyTorch's two CPU libraries, and the loss of the output layer.

Worth: 1.1 times the speed of a training step and 1.2 of beam search, at both sizes. The loss is
worth 1.1 times the speed of a training step of *large*.

Equals `torch.nn.Linear` and its gradients. Two of PyTorch's private operators, which TorchInductor
uses, make products faster in single precision: oneDNN's, on processors that are not Intel's, where
MKL avoids AVX-512; and MKL's on Intel's (docs/benchmarks.md). Either library is faster with weights
packed beforehand, which it would otherwise rearrange for every product; frozen layers keep theirs.

Shapes: R rows, O and I widths of output and input; for the loss, R words of all captions, V
vocabulary, m width of the output layer's input.
"""

from functools import cache
from typing import Any, Literal, NamedTuple
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from captioning.device import is_intels, multiplies_bfloat16_fast
from captioning.kernels.compiled import Compiled

ROWS = 160
"""The number of rows that weights are packed for: five captions of 32 photos. Fewer rows are at
least as fast as without packing; weights packed for fewer rows would slow products of many."""

CHUNK = 2**22
"""Logits in memory at a time: 16 MB in single precision, where larger blocks would be requested
from the operating system each time."""

Library = Literal["oneDNN", "MKL"]


class _Packed(NamedTuple):
    """A weight packed for a library, and the state of the weight it was made from."""

    library: Library
    state: tuple[torch.dtype, int, int]
    weight: Tensor


_packed: WeakKeyDictionary[nn.Linear, _Packed] = WeakKeyDictionary()
"""Not attributes of the layers, which would be copied and saved with them."""


def product(x: Float[Tensor, "R I"], weight: Float[Tensor, "O I"]) -> Float[Tensor, "R O"]:
    """The product x W^T, without a gradient."""
    if fast_library(x, weight) == "oneDNN":
        return _multiplied_by_onednn(x, weight, None)
    return x @ weight.t()


def transposed_product(x: Float[Tensor, "R O"], y: Float[Tensor, "R I"]) -> Float[Tensor, "O I"]:
    """The product x^T y, without a gradient; a weight's gradient is such a product."""
    if fast_library(x, y) != "oneDNN":
        return x.t() @ y
    # oneDNN needs one operand contiguous, and reads a transposed other one as fast.
    if x.shape[1] < y.shape[1]:
        return product(_transposed(x), y.t())
    return product(_transposed(y), x.t()).t()


def linear(
    x: Float[Tensor, "*B I"], weight: Float[Tensor, "O I"], bias: Float[Tensor, "O"] | None = None
) -> Float[Tensor, "*B O"]:
    """The layer x W^T + b."""
    if fast_library(x, weight) == "oneDNN" and not torch.is_autocast_enabled("cpu"):
        return _Linear.apply(x, weight, bias)
    return F.linear(x, weight, bias)


def layer(module: nn.Linear, x: Float[Tensor, "*B I"]) -> Float[Tensor, "*B O"]:
    """The module's output; by its packed weight if it is frozen."""
    found = None
    if not (torch.is_grad_enabled() or module.weight.requires_grad) and x.numel():
        found = _packed_weight(module, x)
    if found is None:
        return linear(x, module.weight, module.bias)
    if found.library == "oneDNN":
        dtype = _precision(x)
        bias = None if module.bias is None else module.bias.to(dtype)
        return _multiplied_by_onednn(x.to(dtype), found.weight, bias)
    rows = x.shape[:-1].numel()
    return torch.ops.mkl._mkl_linear(x, found.weight, module.weight, module.bias, rows)


def _packed_weight(module: nn.Linear, x: Tensor) -> _Packed | None:
    """The packed weight, packed again after a change in place; None if no library is faster.

    Under autocast weights are packed in bfloat16, if the processor is fast at it; PyTorch would
    convert those of frozen layers for every product.
    """
    weight, dtype = module.weight, _precision(x)
    library = fast_library(weight, weight)
    if library and dtype != weight.dtype:  # under autocast
        is_fast = dtype == torch.bfloat16 and multiplies_bfloat16_fast()
        library = "oneDNN" if is_fast else None
    if library is None or weight.is_inference():
        return None
    state = (dtype, weight.data_ptr(), weight._version)
    found = _packed.get(module)
    if found is None or (found.library, found.state) != (library, state):
        if library == "oneDNN":
            new = torch.ops.mkldnn._reorder_linear_weight(weight.detach().to(dtype), ROWS)
        else:
            new = torch.ops.mkl._mkl_reorder_linear_weight(weight.detach(), ROWS)
        found = _packed[module] = _Packed(library, state, new)
    return found


def fast_library(x: Tensor, weight: Tensor) -> Library | None:
    """The library whose private operators multiply these faster than PyTorch does, if any."""
    if x.device.type != "cpu" or not x.dtype == weight.dtype == torch.float32 or not x.numel():
        return None
    if is_intels():
        return "MKL" if _has("mkl", "_mkl_linear", "_mkl_reorder_linear_weight") else None
    has_onednn = _has("mkldnn", "_linear_pointwise", "_reorder_linear_weight")
    return "oneDNN" if has_onednn and torch.backends.mkldnn.enabled else None


@cache
def _has(library: str, *operators: str) -> bool:
    available = getattr(torch.backends, library).is_available()
    return available and all(hasattr(getattr(torch.ops, library), name) for name in operators)


def _precision(x: Tensor) -> torch.dtype:
    """The precision that x is multiplied in."""
    return torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else x.dtype


def _multiplied_by_onednn(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    # oneDNN multiplies slices of larger matrices by its reference kernel, a thousand times slower.
    x, weight = (
        part if part.is_contiguous() or part.mT.is_contiguous() else part.contiguous()
        for part in (x, weight)
    )
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


@Compiled
def _transposed(x: Tensor) -> Tensor:
    return x.t().contiguous()


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _multiplied_by_onednn(x, weight, bias)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        rows = grad.flatten(0, -2)
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad
        return (
            product(rows, weight.t()).view_as(x) if needs_x else None,  # dL/dx = dL/dy W
            transposed_product(rows, x.flatten(0, -2)) if needs_weight else None,  # (dL/dy)^T x
            rows.sum(0) if needs_bias else None,
        )


def linear_cross_entropy(
    x: Float[Tensor, "R m"],
    weight: Float[Tensor, "V m"],
    bias: Float[Tensor, "V"],
    targets: Int[Tensor, "R"],
    label_smoothing: float = 0.0,
    loss_weights: Float[Tensor, "R"] | None = None,
) -> Float[Tensor, ""]:
    """Sum over words of the cross-entropy of softmax(W x + b), in nats.

    Equals a layer followed by `captioning.models.losses.cross_entropy`. Logits and their gradients
    are computed together, for a few words at a time, so those of all words are never in memory.

    Args:
        x: one row per word; the logits are computed in its precision.
        weight: W.
        bias: b.
        targets: the words.
        label_smoothing: share of the target's probability spread over the vocabulary.
        loss_weights: factor of each word's loss.
    """
    with torch.autocast(x.device.type, enabled=False):
        return _LinearCrossEntropy.apply(x, weight, bias, targets, label_smoothing, loss_weights)


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        targets: Tensor,
        smoothing: float,
        loss_weights: Tensor | None,
    ) -> Tensor:
        precision = torch.promote_types(x.dtype, torch.float32)
        counts = x.new_ones(len(x), 1, dtype=precision)
        if loss_weights is not None:
            counts = loss_weights[:, None].to(precision)
        total = x.new_zeros((), dtype=precision)
        # Starts as the first summand to keep its memory layout.
        grad_x, grad_weight, grad_bias = torch.empty_like(x), None, torch.zeros_like(bias)
        unrounded, weight, bias = weight, weight.to(x.dtype), bias.to(x.dtype)
        size = max(1, CHUNK // len(weight))
        for first in range(0, len(x), size):
            rows = slice(first, first + size)
            logits = product(x[rows], weight).add_(bias)
            loss, grad = _losses(logits, targets[rows, None], counts[rows], smoothing)
            total += loss
            grad_bias += grad.sum(0)
            grad_x[rows] = product(grad, weight.t())  # W^T (p - truth)
            summand = transposed_product(grad, x[rows]).to(unrounded.dtype)  # (p - truth) x^T
            grad_weight = summand if grad_weight is None else grad_weight.add_(summand)
        if grad_weight is None:
            grad_weight = torch.zeros_like(unrounded)
        ctx.save_for_backward(grad_x, grad_weight, grad_bias)
        return total

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        grad_x, *others = ctx.saved_tensors
        return grad_x * grad.to(grad_x.dtype), *(part * grad for part in others), None, None, None


@Compiled
def _losses(
    logits: Tensor, targets: Tensor, counts: Tensor, smoothing: float
) -> tuple[Tensor, Tensor]:
    """The loss of some words, and the gradient of their logits."""
    share = smoothing / logits.shape[1]
    log_probs = logits.log_softmax(dim=1, dtype=counts.dtype)
    wanted, every = log_probs.gather(1, targets), log_probs.sum(dim=1, keepdim=True)
    loss = -(counts * ((1 - smoothing) * wanted + share * every)).sum()
    grad = log_probs.exp_().sub_(share)
    truth = grad.new_full((), smoothing - 1).expand_as(targets)
    return loss, grad.scatter_add_(1, targets, truth).mul_(counts).to(logits.dtype)
