"""Chooses the device and the precision to compute in."""

import torch

from captioning.errors import InputError
from captioning.kernels import multiplies_bfloat16_fast


def usable_device(name: str | None = None) -> str:
    """The device of this name, or the best available one.

    Raises:
        InputError: this machine has no such device.
    """
    if name is None:
        if torch.cuda.is_available():
            return "cuda"
        return "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        torch.zeros(1, device=name).item()  # the device meta, for example, holds no values
    except (RuntimeError, AssertionError, NotImplementedError):
        raise InputError(
            f"this machine has no device {name!r}; give cpu, or leave it out"
        ) from None
    return name


def fast_precision() -> str:
    """The precision in which this machine trains fastest, by Lightning's name.

    Mixed bfloat16 where bfloat16 is fast: recent CUDA devices, CPUs with AMX, and AMD's CPUs with
    AVX-512 BF16. Single precision elsewhere.
    """
    if torch.cuda.is_available():
        fast = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        fast = multiplies_bfloat16_fast()
    return "bf16-mixed" if fast else "32-true"
