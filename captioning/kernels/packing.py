"""Packs the large weights of a decoder while it does many products with them."""

from collections.abc import Iterator
from contextlib import AbstractContextManager

from torch import nn

from captioning.kernels.linear import packed
from captioning.models.lstm import LSTMDecoder

LAYERS = (
    "attention.query",
    "word_gates",
    "hidden_gates",
    "context_gates",
    "output_hidden",
    "output_context",
    "output",
)
"""The layers of an `LSTMDecoder` that every step of a search uses."""


def packed_weights(decoder: nn.Module) -> AbstractContextManager[None]:
    """Pack the decoder's weights while the block lasts, in which parameters must not change.

    Args:
        decoder: an LSTM, its kernel, or an ensemble that contains some.
    """
    return packed(_large_layers(decoder))


def _large_layers(decoder: nn.Module) -> Iterator[nn.Linear]:
    for module in decoder.modules():
        if isinstance(module, LSTMDecoder):
            layers = dict(module.named_modules())
            for name in LAYERS:  # ablations lack some; an attention may have no single query
                if type(layer := layers.get(name)) is nn.Linear:
                    yield layer
