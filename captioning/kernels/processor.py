"""What the processor is fast at, where that decides how to compute."""

import platform
from functools import cache
from pathlib import Path

import torch

CPUINFO = Path("/proc/cpuinfo")
"""Where Linux tells of its processors."""


@cache
def is_intels(cpuinfo: Path = CPUINFO) -> bool:
    """Whether the processor is Intel's.

    By the maker and by no measurement, so that all processes of a training, and a training that
    resumes, compute the same.

    Args:
        cpuinfo: where the system tells of its processors.
    """
    try:
        with cpuinfo.open(encoding="utf-8") as told:
            return "GenuineIntel" in told.read(4096)  # of the first one
    except OSError:  # no Linux; Windows names the maker itself
        return "GenuineIntel" in platform.processor()


def multiplies_bfloat16_fast() -> bool:
    """Whether products of bfloat16 matrices take clearly less time than those in single precision.

    With AMX they do, and with AVX-512 BF16 on AMD's processors, which have twice the rate; on
    Intel's without AMX (which virtual machines may hide) half of it was measured
    (docs/benchmarks.md).
    """
    # Private in torch.cpu, and not there in every version that we run with.
    amx, avx512 = (
        getattr(torch.cpu, name, lambda: False)
        for name in ("_is_amx_tile_supported", "_is_avx512_bf16_supported")
    )
    return bool(amx() or (avx512() and not is_intels()))
