"""The same numbers as `captioning.models` and `captioning.search`, in a fraction of the time.

Each kernel equals one plain class, with its parameters and settings. Subclasses and classes of a
user's own have no kernel: the plain code computes them. Nothing in `models` or `search` imports
this package.

The environment variable ``CAPTIONING_KERNELS=off`` switches all kernels off; their files are then
not even imported.
"""

from captioning.kernels.accelerate import (
    accelerate,
    caption_cross_entropy,
    fast_encoding,
    in_parts,
    on_by_default,
    plain,
)

__all__ = [
    "accelerate",
    "caption_cross_entropy",
    "fast_encoding",
    "in_parts",
    "on_by_default",
    "plain",
]
