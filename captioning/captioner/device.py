"""Where a model computes, and how precisely."""

import torch

from captioning.errors import UsageError
from captioning.kernels.processor import multiplies_bfloat16_fast


def usable_device(name: str | None = None) -> str:
    """The device of this name, or the best one that this machine has.

    Raises:
        UsageError: this machine has no such device.
    """
    if name is None:
        if torch.cuda.is_available():
            return "cuda"
        return "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        torch.zeros(1, device=name).item()  # meta, say, is a device that holds no values
    except (RuntimeError, AssertionError, NotImplementedError):
        raise UsageError(
            f"this machine has no device {name!r}; give cpu, or leave it out"
        ) from None
    return name


def fast_precision() -> str:
    """The precision in which this machine trains fastest, by Lightning's name.

    bfloat16 with weights in single precision where the hardware is fast at it: recent CUDA devices,
    CPUs with AMX, and AMD's with AVX-512 BF16. Single precision elsewhere.
    """
    if torch.cuda.is_available():
        fast = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        fast = multiplies_bfloat16_fast()
    return "bf16-mixed" if fast else "32-true"
