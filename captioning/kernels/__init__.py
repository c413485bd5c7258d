"""The same numbers as `captioning.models` and `captioning.search`, in a fraction of the time.

Each kernel equals one plain class, with its parameters and settings. Subclasses and classes of a
user's own have no kernel: the plain code computes them. Nothing in `models` or `search` imports
this package.

The environment variable ``CAPTIONING_KERNELS=off`` switches all kernels off.
"""

from captioning.kernels.accelerate import accelerate, caption_cross_entropy, on_by_default, plain
from captioning.kernels.compiled import compile_from_now
from captioning.kernels.convolutions import (
    fast_encoding,
    folded,
    in_parts,
    keep_depthwise_precise,
)
from captioning.kernels.linear import multiplies_bfloat16_fast

__all__ = [
    "accelerate",
    "caption_cross_entropy",
    "compile_from_now",
    "fast_encoding",
    "folded",
    "in_parts",
    "keep_depthwise_precise",
    "multiplies_bfloat16_fast",
    "on_by_default",
    "plain",
]
