"""Pointwise arithmetic that TorchInductor makes one pass through memory of, in long trainings.

Compiling takes seconds for each function, and needs a C++ compiler (on GPUs, Triton). So it is done
only while `compile_from_now` says so, and where it fails there are PyTorch's own operations, which
give the same up to rounding and are slower. ``TORCH_COMPILE_DISABLE=1`` does without it.
"""

import logging
import os
import tempfile
from collections.abc import Callable
from functools import update_wrapper
from pathlib import Path
from typing import Generic, ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")

log = logging.getLogger(__name__)

CACHE = "TORCHINDUCTOR_CACHE_DIR"
"""PyTorch's variable for the folder; `import torchvision` sets it, too."""


class _Job:
    """What the process is at: whether to compile, and whether compiling has failed."""

    compiles = False
    has_complained = False


def compile_from_now(wanted: bool = True) -> None:
    """Compile what is called from now on, or no longer, in this process."""
    _Job.compiles = wanted and os.environ.get("TORCH_COMPILE_DISABLE", "0") != "1"


def _keep_processors_apart() -> None:
    """Let PyTorch cache what it compiles in a folder of its own for each kind of processor.

    It finds what was compiled for AVX-512 where only AVX2 is to be used too, and crashes.
    """
    folder = Path(os.environ.get(CACHE, Path(tempfile.gettempdir()) / "torchinductor"))
    kind = torch.backends.cpu.get_cpu_capability().lower().replace(" ", "_")
    if folder.name != kind:
        os.environ[CACHE] = str(folder / kind)


class Compiled(Generic[P, R]):
    """A function of tensors, compiled where that is wanted and no gradients of it are.

    Args:
        function: what is computed.
        plainly: the same as it is best done by PyTorch's own operations; `function` if none.
    """

    def __init__(self, function: Callable[P, R], plainly: Callable[P, R] | None = None) -> None:
        self.function = function
        self.plainly = plainly or function
        self._compiled: Callable[P, R] | None = None
        self._has_failed = False
        update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """What the function gives."""
        if not _Job.compiles or self._has_failed or torch.is_grad_enabled():
            return self.plainly(*args, **kwargs)
        try:
            return self._fast(*args, **kwargs)
        except Exception as error:  # what is wrong with the input, the other way will tell
            self._has_failed = True
            if not _Job.has_complained:
                _Job.has_complained = True
                reason = str(error).strip().partition("\n")[0]
                log.warning("goes on without compiling, which is slower: %s", reason)
            return self.plainly(*args, **kwargs)

    @property
    def _fast(self) -> Callable[P, R]:
        if self._compiled is None:
            from torch._inductor import config  # takes a second to import

            config.compile_threads = 1  # in this process: helpers would stay until its end
            _keep_processors_apart()
            # It warns of CUDA's compiler where there is no GPU.
            logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)
            self._compiled = torch.compile(self.function, fullgraph=True, dynamic=True)
        return self._compiled
