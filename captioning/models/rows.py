"""The words of a batch in the order in which the training's word loop reads them.

Shapes: B images, N captions per image, T words, R words that are read.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from captioning.data.vocabulary import PAD


class Rows:
    """Words in the order of the loop, with little padding.

    The captions of each image are sorted by length, the longest first. Of word t, the loop reads
    the first `widths[t]` captions of every image, as many as any image still has; the rows of word
    t are these (B, widths[t]) words, and all rows follow each other.

    Args:
        tokens: word ids, PAD after the end of each caption.

    Attributes:
        shape: of `tokens`.
        widths: captions per image that are read, of each word.
        places: where each row's word is in the flat `tokens`, (R,).
        tokens: the word ids of the rows, (R,).
    """

    def __init__(self, tokens: Int[Tensor, "B N T"]) -> None:
        self.shape = tokens.shape
        images, captions, words = tokens.shape
        real = tokens != PAD
        order = real.sum(dim=2).argsort(dim=1, descending=True, stable=True)
        running = real.gather(1, order[:, :, None].expand(-1, -1, words))
        self.widths: list[int] = [n for n in running.any(0).sum(0).tolist() if n]
        self.images = images
        places = (torch.arange(images, device=tokens.device)[:, None] * captions + order) * words
        self.places = torch.cat(
            [(places[:, :width] + word).flatten() for word, width in enumerate(self.widths)]
            or [places.new_empty(0)]
        )
        self.tokens = tokens.flatten()[self.places]

    @cached_property
    def real(self) -> Int[Tensor, "r"]:
        """Which rows are words and not padding."""
        return (self.tokens != PAD).nonzero()[:, 0]

    def without_padding(self, rows: Float[Tensor, "R X"]) -> Float[Tensor, "r X"]:
        """The real ones of the rows."""
        return _Picked.apply(rows, self.real)

    @property
    def slices(self) -> Iterator[tuple[slice, int]]:
        """Where the rows of each word are, and their captions per image."""
        first = 0
        for width in self.widths:
            yield slice(first, first + self.images * width), width
            first += self.images * width

    def spread(self, rows: Float[Tensor, "r X"]) -> Float[Tensor, "B N T X"]:
        """What belongs to the real rows at the places of their words; zero elsewhere."""
        spread = rows.new_zeros(self.shape.numel(), rows.shape[1])
        return spread.index_copy(0, self.places[self.real], rows).view(*self.shape, -1)


class _Picked(torch.autograd.Function):
    """Rows by their numbers, each at most once: unlike PyTorch's, their gradients need no sums."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, picked: Tensor) -> Tensor:
        ctx.save_for_backward(picked)
        ctx.count = len(rows)
        return rows.index_select(0, picked)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        [picked] = ctx.saved_tensors
        rows = gradient.new_zeros(ctx.count, gradient.shape[1])
        return rows.index_copy_(0, picked, gradient), None
