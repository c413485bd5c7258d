"""The same numbers as `captioning.models` and `captioning.search`, in a fraction of the time.

A kernel equals exactly one plain class, whose parameters and settings it uses. Subclasses and
users' own classes have no kernel: the plain code computes them. Nothing in `models` or `search`
imports this package.

The environment variable ``CAPTIONING_KERNELS=off`` switches all kernels off.
"""

import os

from captioning.kernels.fast_lstm import FastLSTM
from captioning.kernels.fast_search import FAST
from captioning.models.decoder import Decoder
from captioning.models.lstm import LSTMDecoder
from captioning.search.search import Search

SWITCH = "CAPTIONING_KERNELS"


def on_by_default() -> bool:
    """False if the environment switches kernels off."""
    return os.environ.get(SWITCH, "on").lower() not in ("off", "0", "false", "no")


def accelerated(decoder: Decoder) -> Decoder:
    """The decoder's kernel, with the same parameters; the decoder itself if it has none."""
    if isinstance(decoder, LSTMDecoder) and FastLSTM.knows(decoder):
        return FastLSTM(decoder)
    return decoder


def accelerated_search(search: Search) -> Search:
    """The search's kernel, with the same settings; the search itself if it has none."""
    kind = FAST.get(type(search))
    return search if kind is None else search.replace(kind)
