"""Functions that TorchInductor fuses into one pass through memory in long trainings.

Worth: 1.1 to 1.3 times the speed of a training step of the photo model's size, 1.0 to 1.1 of
*large*.

Compiling takes seconds per function and needs a C++ compiler, so functions are compiled only after
`compile_from_now`. If compiling fails, PyTorch's own operations run instead, which are slower and
equal up to rounding. ``TORCH_COMPILE_DISABLE=1`` switches compiling off.
"""

import logging
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")

log = logging.getLogger(__name__)

RECOMPILATIONS = 64
"""The most forms of a function that are compiled; PyTorch's own limit is 8."""

CACHE = "TORCHINDUCTOR_CACHE_DIR"
"""PyTorch's environment variable for the cache folder; `import torchvision` sets it, too."""

_state = {"compiles": False, "complained": False}


def compile_from_now(wanted: bool = True) -> None:
    """Switch compiling on, or off, for later calls in this process."""
    _state["compiles"] = wanted and os.environ.get("TORCH_COMPILE_DISABLE", "0") != "1"


class Compiled(Generic[P, R]):
    """A function of tensors, compiled if compiling is on and gradients are off.

    Args:
        function: the function.
        plainly: an equal function that is faster without compiling; defaults to `function`.
    """

    def __init__(self, function: Callable[P, R], plainly: Callable[P, R] | None = None) -> None:
        self.function = function
        self.plainly = plainly or function
        self.compiled: Callable[P, R] | None = None
        self.has_failed = False

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """The function's result."""
        if not _state["compiles"] or self.has_failed or torch.is_grad_enabled():
            return self.plainly(*args, **kwargs)
        try:
            # PyTorch compiles again for parameters, tensors of a graph, and views of other tensors.
            bare: Any = [x.detach() if isinstance(x, torch.Tensor) else x for x in args]
            if self.compiled is None:
                self.compiled = _compile(self.function)
            return self.compiled(*bare, **kwargs)
        except Exception as error:  # bad input raises again below
            self.has_failed = True
            if not _state["complained"]:
                _state["complained"] = True
                message = str(error).partition("from user code:")[0].strip()
                reason = message.partition("\n")[0] or type(error).__name__
                log.warning("cannot compile kernels, so they are slower: %s", reason)
            return self.plainly(*args, **kwargs)


def _compile(function: Callable[P, R]) -> Callable[P, R]:
    from torch._inductor import config  # takes a second to import

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
    return torch.compile(function, fullgraph=True, dynamic=True)
