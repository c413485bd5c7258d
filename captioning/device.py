"""Chooses the device and the precision to compute in."""

import platform
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from captioning.errors import InputError


def usable_device(name: str | None = None) -> str:
    """Check the device of this name, or choose the best available one.

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


def on_device(images: Sequence[Tensor], device: torch.device) -> Tensor:
    """Stack images to a batch; a GPU copies it asynchronously from pinned memory."""
    batch = torch.stack([*images])
    if device.type == "cuda":
        batch = batch.pin_memory()
    return batch.to(device, non_blocking=device.type == "cuda")


def fast_precision() -> str:
    """The precision in which this machine trains fastest, as Lightning calls it.

    Mixed bfloat16 where bfloat16 is fast: recent CUDA devices, CPUs with AMX, and AMD's CPUs with
    AVX-512 BF16. Single precision elsewhere.
    """
    if torch.cuda.is_available():
        fast = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        fast = multiplies_bfloat16_fast()
    return "bf16-mixed" if fast else "32-true"


def multiplies_bfloat16_fast() -> bool:
    """Whether a CPU multiplies matrices in bfloat16 clearly faster than in single precision.

    It does with AMX, and with AVX-512 BF16 on AMD's processors but not on Intel's
    (docs/benchmarks.md), unless oneDNN must not use these.
    """
    # Private, and missing in some supported versions of PyTorch.
    amx, avx512 = (
        getattr(torch.cpu, name, lambda: False)
        for name in ("_is_amx_tile_supported", "_is_avx512_bf16_supported")
    )
    onednn = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)
    return bool((amx() or (avx512() and not is_intel())) and onednn())


@cache
def is_intel() -> bool:
    """Whether Intel made the processor."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        return "GenuineIntel" in cpuinfo.read_text(encoding="utf-8")
    return "GenuineIntel" in platform.processor()  # on Windows the name includes the maker
