"""Keeps freed memory in the process for later allocations."""

import ctypes
import platform

TRIM_THRESHOLD = -1
MMAP_THRESHOLD = -3
"""Parameters of glibc's mallopt."""

LARGEST = 2**25
"""Bytes of the largest blocks that are kept; glibc's maximum."""


def keep_freed_memory() -> None:
    """Let this process keep the memory that it frees, if its allocator is glibc's.

    A training step, or a word of a wide beam search, frees and allocates blocks of some megabytes.
    By default glibc returns them to the system, which clears every page again: about a tenth of
    the time on CPUs (docs/benchmarks.md). Larger blocks are still returned, so the process holds
    little more memory.
    """
    if platform.libc_ver()[0] == "glibc":
        glibc = ctypes.CDLL("libc.so.6")
        glibc.mallopt(TRIM_THRESHOLD, 2**31 - 1)
        glibc.mallopt(MMAP_THRESHOLD, LARGEST)
