"""Where a model computes, and how precisely."""

import torch

from captioning.errors import UsageError


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

    bfloat16 with weights in single precision where the hardware multiplies bfloat16 itself: recent
    CUDA devices, and CPUs with AMX or AVX-512 BF16. Single precision elsewhere.
    """
    if torch.cuda.is_available():
        fast = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        # Private in torch.cpu, and not there in every version that we run with.
        probes = ("_is_amx_tile_supported", "_is_avx512_bf16_supported")
        fast = any(getattr(torch.cpu, name, lambda: False)() for name in probes)
    return "bf16-mixed" if fast else "32-true"
