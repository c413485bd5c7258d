"""Tiny plain models in double precision, which kernels must equal to 1e-10."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from captioning.models import Adapter, Encoder, LSTMDecoder, Model

EXACT: Any = {"rtol": 1e-10, "atol": 1e-10}


class Vectors(Encoder):
    """Takes annotation vectors of width 5 as they are."""

    annotation_dim = 5

    def forward(self, images: Tensor) -> Tensor:
        return images.flatten(2).transpose(1, 2)

    def grid(self, height: int, width: int) -> tuple[int, int]:
        return height, width


def plain_model(
    kind: Callable[..., LSTMDecoder] = LSTMDecoder,
    adapter: dict[str, Any] | None = None,
    vocab_size: int = 8,
    **options: Any,
) -> Model:
    """A model with random parameters that choose some words confidently."""
    torch.manual_seed(1)
    bridge = Adapter(5, **(adapter or {}))
    decoder = kind(bridge.output_dim, vocab_size, 6, 7, 4, **options)
    for parameter in decoder.parameters():
        torch.nn.init.normal_(parameter, std=0.8)
    return Model(Vectors(), bridge, decoder).double().eval()
