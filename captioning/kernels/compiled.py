"""Compiles functions by TorchInductor in long trainings: arithmetic on a CPU, the model on a GPU.

Worth: on a CPU, 1.1 to 1.3 times the speed of a training step of the photo model's size, 1.0 to 1.1
of *large*. On a GPU it is not measured.

Compiling takes seconds per function and needs a C++ compiler, so functions are compiled only after
`compile_from_now`. If compiling fails, PyTorch's own operations run instead, which are slower and
equal up to rounding. ``TORCH_COMPILE_DISABLE=1`` switches compiling off.
"""

import logging
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from captioning.kernels import plain_losses
from captioning.models.decoder import Decoder, Memory

P = ParamSpec("P")
R = TypeVar("R")

log = logging.getLogger(__name__)

MAX_RECOMPILATIONS = 64
"""Maximum number of compiled variants of a function; PyTorch's default is 8."""

LENGTH_MULTIPLE, MAX_LENGTH = 8, 32
"""Lengths of captions that are compiled on a GPU: multiples of 8, up to 32."""

CACHE = "TORCHINDUCTOR_CACHE_DIR"
"""PyTorch's environment variable for the cache folder; `import torchvision` sets it, too."""

_state = {"compiles": False, "has_warned": False}


def compile_from_now(enabled: bool = True) -> None:
    """Switch compiling on or off for later calls in this process; call it before every step."""
    _state["compiles"] = enabled and os.environ.get("TORCH_COMPILE_DISABLE", "0") != "1"
    if _state["compiles"] and torch.cuda.is_available():
        torch.compiler.cudagraph_mark_step_begin()  # overwrites results of the last step


@dataclass(eq=False)
class Compiled(Generic[P, R]):
    """A function of tensors, compiled if compiling is on and gradients are off.

    Args:
        function: the function.
        fallback: an equal function that is faster without compiling; defaults to `function`.
        trains: compile with gradients, if they are on, and replay as a CUDA graph.
    """

    function: Callable[P, R]
    fallback: Callable[P, R] | None = None
    trains: bool = False
    compiled: Callable[P, R] | None = field(default=None, init=False)
    has_failed: bool = field(default=False, init=False)

    @property
    def is_on(self) -> bool:
        """Whether a call now is compiled."""
        fits = torch.is_grad_enabled() == self.trains
        return _state["compiles"] and fits and not self.has_failed

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if self.is_on:
            try:
                inputs: Any = args
                if not self.trains:
                    # PyTorch compiles again for parameters, tensors of a graph, and views.
                    inputs = [x.detach() if isinstance(x, torch.Tensor) else x for x in args]
                self.compiled = self.compiled or _compile(self.function, self.trains)
                return self.compiled(*inputs, **kwargs)
            except Exception as error:  # bad input raises again below
                self.has_failed = True
                if not _state["has_warned"]:
                    _state["has_warned"] = True
                    message = str(error).partition("from user code:")[0].strip()
                    reason = message.partition("\n")[0] or type(error).__name__
                    log.warning("cannot compile kernels, so they are slower: %s", reason)
        return (self.fallback or self.function)(*args, **kwargs)


def _compile(function: Callable[P, R], trains: bool) -> Callable[P, R]:
    from torch._inductor import config  # takes a second to import

    if not trains:
        config.compile_threads = 1  # no worker processes, which would stay until the end
    # Sizes that are equal by chance, such as B and N, are no reason to compile again.
    torch.fx.experimental._config.use_duck_shape = False
    # Sizes and offsets of 0 and 1 are: two for each size of each tensor, at most.
    torch._dynamo.config.cache_size_limit = MAX_RECOMPILATIONS
    # Code compiled for AVX-512 crashes where only AVX2 may be used: a cache for each processor.
    folder = Path(os.environ.get(CACHE, Path(tempfile.gettempdir()) / "torchinductor"))
    capability = torch.backends.cpu.get_cpu_capability().lower().replace(" ", "_")
    if folder.name != capability:
        os.environ[CACHE] = str(folder / capability)
    # Warns of a missing CUDA compiler even without a GPU.
    logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)
    mode = "reduce-overhead" if trains else None
    return torch.compile(function, fullgraph=True, dynamic=True, mode=mode)


_losses = Compiled(plain_losses, trains=True)


def losses(
    decoder: Decoder, memory: Memory, tokens: Int[Tensor, "B N S"], label_smoothing: float
) -> tuple[Float[Tensor, ""], Float[Tensor, "B N T L"]]:
    """Equals `plain_losses`; compiled, for captions padded to a multiple of `LENGTH_MULTIPLE`.

    The loop over words is unrolled: an LSTM is compiled once for each padded length.
    """
    words = tokens.shape[2] - 1
    if words > MAX_LENGTH or not _losses.is_on:
        return plain_losses(decoder, memory, tokens, label_smoothing)
    total, weights = _losses(
        decoder, memory, F.pad(tokens, (0, -words % LENGTH_MULTIPLE)), label_smoothing
    )
    return total, weights[:, :, :words]
