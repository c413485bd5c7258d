"""Functions that TorchInductor compiles in long trainings: arithmetic on a CPU, the model on a GPU.

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

RECOMPILATIONS = 64
"""The most forms of a function that are compiled; PyTorch's own limit is 8."""

WORDS, MOST_WORDS = 8, 32
"""Lengths of captions that are compiled on a GPU: multiples of 8, up to 32."""

CACHE = "TORCHINDUCTOR_CACHE_DIR"
"""PyTorch's environment variable for the cache folder; `import torchvision` sets it, too."""

_state = {"compiles": False, "complained": False}


def compile_from_now(wanted: bool = True) -> None:
    """Switch compiling on, or off, for later calls in this process; called before every step."""
    _state["compiles"] = wanted and os.environ.get("TORCH_COMPILE_DISABLE", "0") != "1"
    if _state["compiles"] and torch.cuda.is_available():
        torch.compiler.cudagraph_mark_step_begin()  # what the last step computed is overwritten


@dataclass(eq=False)
class Compiled(Generic[P, R]):
    """A function of tensors, compiled if compiling is on and gradients are off.

    Args:
        function: the function.
        plainly: an equal function that is faster without compiling; defaults to `function`.
        trains: compiled with its gradients, if they are on, and replayed as a graph of a GPU.
    """

    function: Callable[P, R]
    plainly: Callable[P, R] | None = None
    trains: bool = False
    compiled: Callable[P, R] | None = field(default=None, init=False)
    has_failed: bool = field(default=False, init=False)

    @property
    def is_on(self) -> bool:
        """Whether a call now is compiled."""
        fits = torch.is_grad_enabled() == self.trains
        return _state["compiles"] and fits and not self.has_failed

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """The function's result."""
        if self.is_on:
            try:
                given: Any = args
                if not self.trains:
                    # PyTorch compiles again for parameters, tensors of a graph, and views.
                    given = [x.detach() if isinstance(x, torch.Tensor) else x for x in args]
                self.compiled = self.compiled or _compile(self.function, self.trains)
                return self.compiled(*given, **kwargs)
            except Exception as error:  # bad input raises again below
                self.has_failed = True
                if not _state["complained"]:
                    _state["complained"] = True
                    message = str(error).partition("from user code:")[0].strip()
                    reason = message.partition("\n")[0] or type(error).__name__
                    log.warning("cannot compile kernels, so they are slower: %s", reason)
        return (self.plainly or self.function)(*args, **kwargs)


def _compile(function: Callable[P, R], trains: bool) -> Callable[P, R]:
    from torch._inductor import config  # takes a second to import

    if not trains:
        config.compile_threads = 1  # no worker processes, which would stay until the end
    # Sizes that are equal by chance, such as B and N, are no reason to compile again.
    torch.fx.experimental._config.use_duck_shape = False
    # Sizes and offsets of 0 and 1 are: two for each size of each tensor, at most.
    torch._dynamo.config.cache_size_limit = RECOMPILATIONS
    # Code compiled for AVX-512 crashes where only AVX2 may be used: a cache for each processor.
    folder = Path(os.environ.get(CACHE, Path(tempfile.gettempdir()) / "torchinductor"))
    kind = torch.backends.cpu.get_cpu_capability().lower().replace(" ", "_")
    if folder.name != kind:
        os.environ[CACHE] = str(folder / kind)
    # Warns of a missing CUDA compiler even without a GPU.
    logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)
    mode = "reduce-overhead" if trains else None
    return torch.compile(function, fullgraph=True, dynamic=True, mode=mode)


_losses = Compiled(plain_losses, trains=True)


def losses(
    decoder: Decoder, memory: Memory, tokens: Int[Tensor, "B N S"], *options: Any
) -> tuple[Float[Tensor, ""], Float[Tensor, "B N T L"]]:
    """Equals `plain_losses`; compiled, for captions padded to a multiple of `WORDS`.

    The loop over words is unrolled: an LSTM is compiled once for each padded length.
    """
    words = tokens.shape[2] - 1
    if words > MOST_WORDS or not _losses.is_on:
        return plain_losses(decoder, memory, tokens, *options)
    total, weights = _losses(decoder, memory, F.pad(tokens, (0, -words % WORDS)), *options)
    return total, weights[:, :, :words]
