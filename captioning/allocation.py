"""Memory that this process frees, kept for what comes next."""

import ctypes
import platform

TRIM_THRESHOLD = -1
MMAP_THRESHOLD = -3
"""Parameters of glibc's mallopt."""

LARGEST = 2**25
"""Bytes of the largest blocks that are kept: glibc takes no more."""


def keep_freed_memory() -> None:
    """Let this process keep what it frees, where its memory is glibc's.

    A training step, or a word of a wide beam search, frees and takes blocks of some megabytes.
    glibc gives such back to the system, which then clears every page of them anew: a tenth of the
    time on CPUs, more or less (docs/benchmarks.md). Larger blocks still go back, so little more is
    held.
    """
    if platform.libc_ver()[0] == "glibc":
        glibc = ctypes.CDLL("libc.so.6")
        glibc.mallopt(TRIM_THRESHOLD, 2**31 - 1)
        glibc.mallopt(MMAP_THRESHOLD, LARGEST)
