"""Linear layers by the faster of PyTorch's two CPU libraries, and what the processor is fast at.

Equals `torch.nn.Linear` and its gradients. Two of PyTorch's private operators, which TorchInductor
uses, make products faster in single precision: oneDNN's, on processors that are not Intel's, where
MKL avoids AVX-512; and MKL's on Intel's (docs/benchmarks.md). Either library is faster with weights
packed beforehand, which it would otherwise rearrange for every product.
`fast_library` returns the one in use; without it, PyTorch's own products run.
"""

import platform
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any, Literal, NamedTuple
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from captioning.kernels.compiled import Compiled

CPUINFO = Path("/proc/cpuinfo")
"""Linux's description of the processors."""

ROWS = 160
"""The number of rows that weights are packed for: five captions of 32 photos. Fewer rows are at
least as fast as without packing; weights packed for fewer rows would slow products of many."""

Library = Literal["oneDNN", "MKL"]


class _Packed(NamedTuple):
    """A weight packed for a library, and the state of the weight it was made from."""

    library: Library
    state: tuple[torch.dtype, int, int]
    weight: Tensor


_packed: WeakKeyDictionary[nn.Linear, _Packed] = WeakKeyDictionary()
"""Not attributes of the layers, which would be copied and saved with them."""

_users: WeakKeyDictionary[nn.Linear, int] = WeakKeyDictionary()
"""How many blocks of `packed` a layer is in; threads may search by one model at once."""

_lock = Lock()


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
    """The module's output; without gradients from its packed weight, if it has one."""
    found, dtype = _packed.get(module), _precision(x)
    if (
        found is None
        or found.state != _state(module.weight, dtype)
        or torch.is_grad_enabled()
        or not x.numel()
    ):
        return linear(x, module.weight, module.bias)
    if found.library == "oneDNN":
        bias = None if module.bias is None else module.bias.to(dtype)
        return _multiplied_by_onednn(x.to(dtype), found.weight, bias)
    rows = x.shape[:-1].numel()
    return torch.ops.mkl._mkl_linear(x, found.weight, module.weight, module.bias, rows)


@contextmanager
def packed(modules: Iterable[nn.Linear]) -> Iterator[None]:
    """Pack the weights of layers for the faster library while the block lasts.

    Products without gradients then use them. Those of frozen layers are kept after the block, and
    used until the weight changes in place; others are released, since not every optimizer leaves a
    trace of its changes. Under autocast weights are packed in bfloat16, if the processor is fast at
    it; PyTorch would convert those of frozen layers for every product.
    """
    modules = list(modules)
    with _lock:
        for module in modules:
            _users[module] = _users.get(module, 0) + 1
    try:
        with _lock:
            for module in modules:
                _pack(module)
        yield
    finally:
        with _lock:
            for module in modules:
                _users[module] -= 1
                if module.weight.requires_grad and not _users[module]:
                    _packed.pop(module, None)


def _pack(module: nn.Linear) -> None:
    """Pack a layer's weight, unless it is packed already or no library is faster."""
    weight, before = module.weight.detach(), _packed.get(module)
    library, dtype = fast_library(weight, weight), _precision(weight)
    if library and dtype != weight.dtype:  # under autocast
        is_fast = dtype == torch.bfloat16 and multiplies_bfloat16_fast()
        library = "oneDNN" if is_fast else None
    state = _state(module.weight, dtype)
    if weight.is_inference() or library is None or (before and before[:2] == (library, state)):
        return
    if library == "oneDNN":
        new = torch.ops.mkldnn._reorder_linear_weight(weight.to(dtype), ROWS)
    else:
        new = torch.ops.mkl._mkl_reorder_linear_weight(weight, ROWS)
    _packed[module] = _Packed(library, state, new)


def fast_library(x: Tensor, weight: Tensor) -> Library | None:
    """The library whose private operators multiply these faster than PyTorch does, if any."""
    if x.device.type != "cpu" or not x.dtype == weight.dtype == torch.float32 or not x.numel():
        return None
    if is_intels():
        return "MKL" if _has_mkl() else None
    return "oneDNN" if _has_onednn() and torch.backends.mkldnn.enabled else None


@cache
def _has_onednn() -> bool:
    names, operators = ("_linear_pointwise", "_reorder_linear_weight"), torch.ops.mkldnn
    return torch.backends.mkldnn.is_available() and all(hasattr(operators, n) for n in names)


@cache
def _has_mkl() -> bool:
    names = "_mkl_linear", "_mkl_reorder_linear_weight"
    return torch.backends.mkl.is_available() and all(hasattr(torch.ops.mkl, n) for n in names)


@cache
def is_intels(cpuinfo: Path = CPUINFO) -> bool:
    """Whether the processor is Intel's.

    No measurement decides, so that all processes of a training, and a resumed one, compute the same
    numbers.
    """
    try:
        with cpuinfo.open(encoding="utf-8") as file:
            return "GenuineIntel" in file.read(4096)  # the first processor's entry
    except OSError:  # not Linux; on Windows the processor's name includes the maker
        return "GenuineIntel" in platform.processor()


def multiplies_bfloat16_fast() -> bool:
    """Whether matrix products in bfloat16 are clearly faster than in single precision.

    They are with AMX, and with AVX-512 BF16 on AMD's processors, but not with Intel's AVX-512 BF16
    without AMX (docs/benchmarks.md), nor if oneDNN must not use these.
    """
    # Private, and missing in some supported versions of PyTorch.
    amx, avx512 = (
        getattr(torch.cpu, name, lambda: False)
        for name in ("_is_amx_tile_supported", "_is_avx512_bf16_supported")
    )
    onednn = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)
    return bool((amx() or (avx512() and not is_intels())) and onednn())


def _precision(x: Tensor) -> torch.dtype:
    """The precision that x is multiplied in."""
    return torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else x.dtype


def _state(weight: Tensor, dtype: torch.dtype) -> tuple[torch.dtype, int, int]:
    """Changes with precision and weight: its address and PyTorch's count of changes in place."""
    return dtype, weight.data_ptr(), 0 if weight.is_inference() else weight._version


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
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        rows = gradient.flatten(0, -2)
        of_x, of_weight, of_bias = ctx.needs_input_grad
        return (
            product(rows, weight.t()).view_as(x) if of_x else None,  # dL/dx = dL/dy W
            transposed_product(rows, x.flatten(0, -2)) if of_weight else None,  # (dL/dy)^T x
            rows.sum(0) if of_bias else None,
        )
