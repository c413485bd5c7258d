"""Functions that TorchInductor fuses into one pass through memory in long trainings.

Compiling takes seconds per function and needs a C++ compiler (on GPUs, Triton), so functions are
compiled only after `compile_from_now`. If compiling fails, PyTorch's own operations run instead,
which are slower and equal up to rounding. ``TORCH_COMPILE_DISABLE=1`` switches compiling off.
"""

import logging
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
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


class _Job:
    """State of the process."""

    compiles = False
    has_complained = False


def compile_from_now(wanted: bool = True) -> None:
    """Switch compiling on, or off, for later calls in this process."""
    _Job.compiles = wanted and os.environ.get("TORCH_COMPILE_DISABLE", "0") != "1"


def _keep_processors_apart() -> None:
    """Give PyTorch's compile cache a folder for each kind of processor.

    Otherwise PyTorch would load code compiled for AVX-512 where only AVX2 may be used, and crash.
    """
    folder = Path(os.environ.get(CACHE, Path(tempfile.gettempdir()) / "torchinductor"))
    kind = torch.backends.cpu.get_cpu_capability().lower().replace(" ", "_")
    if folder.name != kind:
        os.environ[CACHE] = str(folder / kind)


@dataclass
class Compiled(Generic[P, R]):
    """A function of tensors, compiled if compiling is on and gradients are off.

    Attributes:
        function: the function.
        plainly: an equal function that is faster without compiling; defaults to `function`.
    """

    function: Callable[P, R]
    plainly: Callable[P, R] | None = None
    _compiled: Callable[P, R] | None = None
    _has_failed: bool = False

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """The function's result."""
        plainly = self.plainly or self.function
        if not _Job.compiles or self._has_failed or torch.is_grad_enabled():
            return plainly(*args, **kwargs)
        try:
            # PyTorch compiles again for parameters, tensors of a graph, and views of other tensors.
            bare: Any = [x.detach() if isinstance(x, torch.Tensor) else x for x in args]
            return self._fast(*bare, **kwargs)
        except Exception as error:  # bad input raises again below
            self._has_failed = True
            if not _Job.has_complained:
                _Job.has_complained = True
                message = str(error).partition("from user code:")[0].strip()
                reason = message.partition("\n")[0] or type(error).__name__
                log.warning("cannot compile kernels, so they are slower: %s", reason)
            return plainly(*args, **kwargs)

    @property
    def _fast(self) -> Callable[P, R]:
        if self._compiled is None:
            from torch._inductor import config  # takes a second to import

            config.compile_threads = 1  # no worker processes, which would stay until the end
            # Sizes that are equal by chance, such as B and N, are no reason to compile again.
            torch.fx.experimental._config.use_duck_shape = False
            # Sizes and offsets of 0 and 1 are: two for each size of each tensor, at most.
            torch._dynamo.config.cache_size_limit = RECOMPILATIONS
            _keep_processors_apart()
            # Warns of a missing CUDA compiler even without a GPU.
            logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)
            self._compiled = torch.compile(self.function, fullgraph=True, dynamic=True)
        return self._compiled
