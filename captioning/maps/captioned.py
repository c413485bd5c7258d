"""A batch of images with captions, the input of every map.

Shapes: B images, N captions per image, L regions (rows x columns), D annotation width, A adapted
width, S tokens from BOS to EOS, T = S - 1 predicted words (EOS included).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from captioning.errors import InputError
from captioning.models import Model

Maps: TypeAlias = Float[Tensor, "B N T rows columns"]
"""The map of each word: shares of the regions, which sum to 1. Undefined at PAD."""

NEIGHBOURHOOD = 3
"""Rows and columns of a region's neighbourhood."""


class MapError(InputError):
    """Raised for an unknown map, or one that the model does not have."""


@dataclass(frozen=True)
class CaptionedBatch:
    """Encoded images with captions, which the model reads by teacher forcing.

    Attributes:
        model: plain and in evaluation mode.
        images: pixels.
        annotations: of the images, by `model.encode`.
        adapted: the adapter's vectors of the annotations, which the decoder attends over.
        tokens: the captions from BOS to EOS, then PAD.
        _attention: what `attention` returns, if it has been computed before; None to compute it.
        _encode: a faster function that equals `model.encode`; None if there is none.
    """

    model: Model
    images: UInt8[Tensor, "B 3 H W"]
    annotations: Float[Tensor, "B L D"]
    adapted: Float[Tensor, "B L A"]
    tokens: Int[Tensor, "B N S"]
    _attention: Float[Tensor, "B N T L"] | None = None
    _encode: Callable[[UInt8[Tensor, "B 3 H W"]], Float[Tensor, "B L D"]] | None = None

    @cached_property
    def attention(self) -> Float[Tensor, "B N T L"]:
        """The attention weights before each predicted word; undefined at PAD."""
        if self._attention is not None:
            return self._attention
        with torch.no_grad():
            memory = self.model.decoder.remember(self.adapted)
            return self.model.decoder.teacher_forcing(memory, self.tokens[..., :-1])[1]

    @torch.no_grad()
    def adapted_vectors(self, images: UInt8[Tensor, "B 3 H W"]) -> Float[Tensor, "B L A"]:
        """Encode other images, of any size, and apply the adapter."""
        encode = self._encode or self.model.encode
        return self.model.adapter(encode(images))

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of the attention's regions."""
        return self.model.encoder.grid(self.images.shape[2], self.images.shape[3])


WordMap: TypeAlias = Callable[[CaptionedBatch], Maps]
"""Computes one kind of map."""


def shares(relevance: Float[Tensor, "*B L"], grid: tuple[int, int]) -> Float[Tensor, "*B r c"]:
    """Normalise relevance to shares on the grid; negative values count as 0, all zeros as equal."""
    positive = relevance.detach().clamp(min=0)
    total = positive.sum(dim=-1, keepdim=True)
    uniform = torch.full_like(positive, 1 / positive.shape[-1])
    normalised = positive / total.clamp(min=torch.finfo(total.dtype).tiny)
    return torch.where(total > 0, normalised, uniform).unflatten(-1, grid)
