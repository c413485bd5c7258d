"""Ragged batches: a row for every word, and none for captions that have ended.

A plain decoder computes all B x N captions at every word. A kernel computes the rows of the active
captions only; for the attention, rows are regrouped by image.

Shapes: B images, N captions per image, T words, R rows in all, r of them active at one word, n the
most active captions that one image has.
"""

from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple, TypeVar

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from captioning.data.vocabulary import PAD

Count = TypeVar("Count", int, Tensor)

MULTIPLE = 16
"""The number of rows is padded to a multiple of this. Libraries prepare matrix products for each
size, so fewer distinct sizes are worth some padding."""


class ActiveRows(NamedTuple):
    """The rows of one word, one for each caption that has not ended.

    Attributes:
        here: their slice of the rows of all words.
        captions: n.
        slots: the index of each row in the flat (B, n) captions; None if all captions are active
            and in order.
        images: B.
    """

    here: slice
    captions: int
    slots: Int[Tensor, "r"] | None
    images: int

    @property
    def size(self) -> int:
        """The number of rows, r."""
        return int(self.here.stop - self.here.start)

    @classmethod
    def all_of(cls, tokens: Int[Tensor, "B N"]) -> "ActiveRows":
        """The rows of all captions in their order."""
        return cls(slice(0, tokens.numel()), tokens.shape[1], None, len(tokens))

    @classmethod
    def of(cls, tokens: Int[Tensor, "B N"]) -> "ActiveRows":
        """The rows of the captions whose last token is not PAD.

        On a GPU, the rows of all captions: fewer would save little, and counting them would make
        the host wait.
        """
        everything = cls.all_of(tokens)
        if tokens.device.type != "cpu":
            return everything
        ended = tokens.flatten() == PAD
        count = _padded(len(ended) - int(ended.sum()))
        if count >= len(ended):
            return everything
        slots = ended.int().argsort(stable=True)[:count]
        return everything._replace(here=slice(0, count), slots=slots)

    def by_image(self, rows: Shaped[Tensor, "r X"]) -> Shaped[Tensor, "B n X"]:
        """The rows grouped by image, padded with zeros to n."""
        if self.slots is None:
            return rows.unflatten(0, (self.images, self.captions))
        spread = rows.new_zeros(self.images * self.captions, rows.shape[1])
        return spread.index_copy_(0, self.slots, rows).unflatten(0, (self.images, self.captions))

    def in_rows(self, by_image: Shaped[Tensor, "B n *X"]) -> Shaped[Tensor, "r *X"]:
        """The inverse of `by_image`."""
        flat = by_image.flatten(0, 1)
        return flat if self.slots is None else flat.index_select(0, self.slots)


class PackedWords:
    """All words of a batch in the order of training's loop over words, with little padding.

    The captions of all images are sorted by length, the longest first. At word t the loop reads the
    captions that have a word t, which come first, padded to a multiple of `MULTIPLE`.

    Args:
        tokens: word ids, PAD after the end of each caption.

    Attributes:
        shape: of `tokens`.
        order: the sorted captions, as indices into the flat (B, N), (B N,).
        words: the active rows of each word.
        places: the index of each row's word in the flat `tokens`, (R,).
        tokens: the word ids of the rows, (R,).
    """

    def __init__(self, tokens: Int[Tensor, "B N T"]) -> None:
        self.shape = tokens.shape
        images, captions, words = tokens.shape
        lengths = (tokens != PAD).sum(dim=2).cpu()  # the host computes the rest
        order = lengths.flatten().argsort(descending=True, stable=True)
        ranks = lengths.argsort(dim=1, descending=True, stable=True).argsort(dim=1)
        image, rank = order // captions, ranks.flatten()[order]
        longest = int(lengths.max()) if lengths.numel() else 0
        running = (lengths.flatten() > torch.arange(longest)[:, None]).sum(1)
        counts = _padded(running).clamp(max=len(order)).tolist()
        widths = (rank.cummax(0).values + 1).tolist()
        slots = [image[:r] * widths[r - 1] + rank[:r] for r in counts]
        places = [order[:r] * words + word for word, r in enumerate(counts)]
        none = order.new_empty(0)
        self.order, at, self.places = (
            part.to(tokens.device)
            for part in (order, torch.cat([none, *slots]), torch.cat([none, *places]))
        )
        self.words = [
            ActiveRows(slice(end - r, end), widths[r - 1], at[end - r : end], images)
            for r, end in zip(counts, accumulate(counts), strict=True)
        ]
        self.tokens = tokens.flatten()[self.places]

    @cached_property
    def real(self) -> Int[Tensor, "r"]:
        """The indices of the rows that are words and not padding."""
        return (self.tokens != PAD).nonzero()[:, 0]

    def without_padding(self, rows: Float[Tensor, "R X"]) -> Float[Tensor, "r X"]:
        """The rows that are words."""
        return _Picked.apply(rows, self.real)

    def spread(self, rows: Float[Tensor, "r X"]) -> Float[Tensor, "B N T X"]:
        """Values of the real rows, put at the places of their words; zero elsewhere."""
        spread = rows.new_zeros(self.shape.numel(), rows.shape[1])
        return spread.index_copy(0, self.places[self.real], rows).view(*self.shape, -1)

    def by_image(self, rows: Float[Tensor, "R X"]) -> Float[Tensor, "B W X"]:
        """The rows grouped by image, padded with zeros to W."""
        return torch.cat([word.by_image(rows[word.here]) for word in self.words], dim=1)


def _padded(rows: Count) -> Count:
    """The next multiple of `MULTIPLE`."""
    return -(-rows // MULTIPLE) * MULTIPLE


class _Picked(torch.autograd.Function):
    """Gathers rows, each at most once, so that gradients need no sums as PyTorch's do."""

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
