"""The promise that every map of a word keeps.

Shapes: B images, N captions per image, T words after BOS, rows x columns of the map's own grid.
"""

from abc import ABC, abstractmethod
from typing import TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from captioning.errors import InputError
from captioning.maps.reading import Reading

Maps: TypeAlias = Float[Tensor, "B N T rows columns"]
"""A map for each word, of shares that sum to one. What stands at PAD means nothing."""


class MapError(InputError):
    """There is no map of this name, or none of this model."""


class WordMap(ABC):
    """A way to tell which regions of the photo a word was written from.

    Attributes:
        takes_one_pass: whether reading a caption once is enough; others take a gradient for each
            word, or passes in which regions are hidden.
        needs_evidence: whether only a decoder with evidence has it.
    """

    takes_one_pass = False
    needs_evidence = False

    @abstractmethod
    def __call__(self, reading: Reading) -> Maps:
        """The map of every word, over a grid of the whole image.

        Raises:
            InputError: this model has no such map.
        """


def shares(relevance: Float[Tensor, "*B L"], grid: tuple[int, int]) -> Float[Tensor, "*B r c"]:
    """The positive part of each region's relevance, as shares that sum to one, on the grid.

    A map without a positive part tells nothing, and is the same everywhere.
    """
    positive = relevance.detach().clamp(min=0)
    total = positive.sum(dim=-1, keepdim=True)
    even = torch.full_like(positive, 1 / positive.shape[-1])
    found = torch.where(total > 0, positive / total.clamp(min=torch.finfo(total.dtype).tiny), even)
    return found.unflatten(-1, grid)
