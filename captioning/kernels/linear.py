"""Linear layers by oneDNN on processors that are not Intel's.

Worth: 1.1 times the speed of a training step and 1.2 to 1.4 of beam search.

Equals `torch.nn.Linear` and its gradients. PyTorch multiplies in single precision by MKL, which
avoids AVX-512 on other processors than Intel's. oneDNN is also faster with weights packed
beforehand, which it would otherwise rearrange for every product. Its operators are private ones of
PyTorch, which TorchInductor uses.

Shapes: R rows, O and I widths of output and input.
"""

from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from captioning.device import is_intel, multiplies_bfloat16_fast
from captioning.kernels.compiled import Compiled

PACKED_ROWS = 160
"""Number of rows that weights are packed for: five captions of 32 photos. Fewer rows are at least
as fast as without packing; weights packed for fewer rows would slow products of many."""

_packed: WeakKeyDictionary[nn.Module, tuple[tuple[object, ...], Tensor]] = WeakKeyDictionary()
"""The state of each layer's weight when it was packed, and the packed weight. Not attributes of the
layers, which would be copied and saved with them."""


def product(x: Float[Tensor, "R I"], weight: Float[Tensor, "O I"]) -> Float[Tensor, "R O"]:
    """The product x W^T, without a gradient."""
    return _onednn_linear(x, weight, None) if onednn_is_faster(x, weight) else x @ weight.t()


def transposed_product(x: Float[Tensor, "R O"], y: Float[Tensor, "R I"]) -> Float[Tensor, "O I"]:
    """The product x^T y, without a gradient; a weight's gradient is such a product."""
    if not onednn_is_faster(x, y):
        return x.t() @ y
    # oneDNN needs one operand contiguous, and reads a transposed other one as fast.
    if x.shape[1] < y.shape[1]:
        return product(_transposed(x), y.t())
    return product(_transposed(y), x.t()).t()


def linear(
    x: Float[Tensor, "*B I"], weight: Float[Tensor, "O I"], bias: Float[Tensor, " O"] | None = None
) -> Float[Tensor, "*B O"]:
    """The layer x W^T + b."""
    if onednn_is_faster(x, weight) and not torch.is_autocast_enabled("cpu"):
        return _Linear.apply(x, weight, bias)
    return F.linear(x, weight, bias)


def layer(module: nn.Linear, x: Float[Tensor, "*B I"]) -> Float[Tensor, "*B O"]:
    """The module's output; by its packed weight if it is frozen.

    Under autocast the weight is packed in bfloat16, if the processor is fast at it; PyTorch would
    convert it for every product.
    """
    weight, bias = module.weight, module.bias
    dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else x.dtype
    is_supported = dtype == weight.dtype or (dtype == torch.bfloat16 and multiplies_bfloat16_fast())
    if (
        not is_supported
        or not x.numel()
        or torch.is_grad_enabled()
        or weight.requires_grad
        or weight.is_inference()
        or not onednn_is_faster(weight, weight)
    ):
        return linear(x, weight, bias)
    state, entry = (dtype, weight.data_ptr(), weight._version), _packed.get(module)
    if entry is None or entry[0] != state:
        plain_weight = weight.detach().to(dtype)
        packed_weight = torch.ops.mkldnn._reorder_linear_weight(plain_weight, PACKED_ROWS)
        entry = _packed[module] = state, packed_weight
    return _onednn_linear(x.to(dtype), entry[1], None if bias is None else bias.to(dtype))


def onednn_is_faster(x: Tensor, weight: Tensor) -> bool:
    """Whether oneDNN's private operators multiply these faster than PyTorch does."""
    is_single = x.dtype == weight.dtype == torch.float32 and x.device.type == "cpu"
    return bool(is_single and x.numel() and torch.backends.mkldnn.enabled and _has_onednn())


@cache
def _has_onednn() -> bool:
    operators = ("_linear_pointwise", "_reorder_linear_weight")
    available = torch.backends.mkldnn.is_available() and not is_intel()
    return available and all(hasattr(torch.ops.mkldnn, name) for name in operators)


def _onednn_linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
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
        return _onednn_linear(x, weight, bias)

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
