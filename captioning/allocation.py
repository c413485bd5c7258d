"""How the commands of this package allocate memory on Linux."""

import ctypes
import platform

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's mallopt."""

LARGEST_KEPT = 2**25
"""Bytes of the largest blocks that are kept; glibc's maximum."""


def keep_freed_memory() -> None:
    """Let this process keep the memory that it frees, if its allocator is glibc's.

    A training step frees and allocates blocks of some megabytes. By default glibc returns them to
    the system, which clears every page again: up to 5 % of a step on a CPU. Larger blocks are still
    returned, so the process holds little more memory. Commands call this; importing or using the
    package does not.
    """
    if platform.libc_ver()[0] == "glibc":
        glibc = ctypes.CDLL("libc.so.6")
        glibc.mallopt(TRIM_THRESHOLD, 2**31 - 1)
        glibc.mallopt(MMAP_THRESHOLD, LARGEST_KEPT)
