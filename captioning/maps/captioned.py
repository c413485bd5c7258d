"""Images with captions that a model reads word by word: what every map is made from.

Shapes: B images, N captions per image, L regions (rows x columns), D annotation width, S tokens
from BOS to EOS, T = S - 1 predicted words (EOS included).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor

from captioning.data.vocabulary import PAD
from captioning.errors import InputError
from captioning.models import Model
from captioning.search.search import generable_log_probs

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


def word_log_probs(
    model: Model,
    annotations: Float[Tensor, "B L D"],
    tokens: Int[Tensor, "B N S"],
    mask: Bool[Tensor, "B L"] | None = None,
) -> Float[Tensor, "B N T"]:
    """The log probability of each word given the words before it, normalised as in a search.

    Zero at PAD and at words that cannot be generated, such as unknown ones.

    Args:
        model: reads the captions.
        annotations: by `model.encode`.
        tokens: the captions from BOS to EOS, then PAD.
        mask: True where a region may be attended; None where all may.
    """
    memory = model.remember(annotations, mask)
    logits, _ = model.decoder.teacher_forcing(memory, tokens[..., :-1])
    words = tokens[..., 1:]
    log_probs = generable_log_probs(logits).gather(-1, words[..., None])[..., 0]
    return torch.where((words != PAD) & log_probs.isfinite(), log_probs, 0.0)


def shares(relevance: Float[Tensor, "*B L"], grid: tuple[int, int]) -> Float[Tensor, "*B r c"]:
    """Shares of the regions on the grid: negative relevance counts as zero, all zeros as equal."""
    positive = relevance.detach().clamp(min=0)
    total = positive.sum(dim=-1, keepdim=True)
    uniform = torch.full_like(positive, 1 / positive.shape[-1])
    normalised = positive / total.clamp(min=torch.finfo(total.dtype).tiny)
    return torch.where(total > 0, normalised, uniform).unflatten(-1, grid)
