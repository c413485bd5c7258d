"""Images with captions that a model reads word by word: what every map is made from.

Shapes: B images, N captions per image, L regions (rows x columns), D annotation width, S tokens
from BOS to EOS, T = S - 1 predicted words (EOS included).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from captioning.errors import InputError
from captioning.models import Model

Maps: TypeAlias = Float[Tensor, "B N T rows columns"]
"""A map of each word: shares of the regions, which sum to one. Undefined at PAD."""

SIDE = 3
"""Rows and columns of a neighbourhood of regions."""


class MapError(InputError):
    """An unknown map, or one that this model cannot give."""


@dataclass(frozen=True)
class Captioned:
    """Images, and captions of each that the model reads word by word."""

    model: Model  # plain and in evaluation mode
    images: UInt8[Tensor, "B 3 H W"]
    annotations: Float[Tensor, "B L D"]  # of the images, by `model.encode`
    tokens: Int[Tensor, "B N S"]  # from BOS to EOS, then PAD

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of the attention's regions."""
        return self.model.encoder.grid(self.images.shape[2], self.images.shape[3])


WordMap: TypeAlias = Callable[[Captioned], Maps]
"""A kind of map."""


def shares(relevance: Float[Tensor, "*B L"], grid: tuple[int, int]) -> Float[Tensor, "*B r c"]:
    """Shares of the regions on the grid: negative relevance counts as zero, all zeros as equal."""
    positive = relevance.detach().clamp(min=0)
    total = positive.sum(dim=-1, keepdim=True)
    uniform = torch.full_like(positive, 1 / positive.shape[-1])
    normalised = positive / total.clamp(min=torch.finfo(total.dtype).tiny)
    return torch.where(total > 0, normalised, uniform).unflatten(-1, grid)
