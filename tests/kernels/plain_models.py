"""Tiny plain models in double precision, which kernels must equal to 1e-10."""

from collections.abc import Callable
from typing import Any

import torch

from captioning.models import Adapter, LSTMDecoder, Model
from tests.fixtures import Vectors, decided

EXACT: Any = {"rtol": 1e-10, "atol": 1e-10}


def plain_model(
    kind: Callable[..., LSTMDecoder] = LSTMDecoder,
    adapter: dict[str, Any] | None = None,
    vocab_size: int = 8,
    **options: Any,
) -> Model:
    """A model with random parameters that choose some words confidently."""
    torch.manual_seed(1)
    bridge = Adapter(5, **(adapter or {}))
    decoder = decided(kind(bridge.output_dim, vocab_size, 6, 7, 4, **options))
    return Model(Vectors(), bridge, decoder).double().eval()
