"""Properties of the processor that decide how to compute."""

import platform
from functools import cache
from pathlib import Path

import torch

CPUINFO = Path("/proc/cpuinfo")
"""Linux's description of the processors."""


@cache
def is_intels(cpuinfo: Path = CPUINFO) -> bool:
    """Whether the processor is Intel's.

    Decided by the maker and not by a measurement, so that all processes of a training, and a
    resumed training, compute the same numbers.

    Args:
        cpuinfo: the system's description of its processors.
    """
    try:
        with cpuinfo.open(encoding="utf-8") as file:
            return "GenuineIntel" in file.read(4096)  # the first processor's entry
    except OSError:  # not Linux; on Windows the processor's name includes the maker
        return "GenuineIntel" in platform.processor()


def multiplies_bfloat16_fast() -> bool:
    """Whether bfloat16 matrix products are clearly faster than those in single precision.

    They are with AMX, and with AVX-512 BF16 on AMD's processors, at twice the rate. Intel's without
    AMX (which virtual machines may hide) reached half the rate (docs/benchmarks.md). They are not
    where oneDNN lacks them, as ``ONEDNN_MAX_CPU_ISA=AVX2`` asks it to: PyTorch's own products of
    bfloat16 take some ten times as long as those in single precision.
    """
    # Private in torch.cpu, and missing in some supported versions.
    amx, avx512 = (
        getattr(torch.cpu, name, lambda: False)
        for name in ("_is_amx_tile_supported", "_is_avx512_bf16_supported")
    )
    fast = amx() or (avx512() and not is_intels())
    return bool(fast and onednn_multiplies_bfloat16())


def onednn_multiplies_bfloat16() -> bool:
    """Whether oneDNN has products of bfloat16 matrices for this processor, and may use them."""
    supported = getattr(getattr(torch.ops, "mkldnn", None), "_is_mkldnn_bf16_supported", None)
    return supported is not None and bool(supported())
