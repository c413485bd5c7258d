"""Raggedness: a batch's words as rows; captions that have ended have none.

A plain decoder computes all B x N captions at every word. A kernel computes the rows of the active
captions only; the attention gets them back at their images.

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
"""The number of rows is padded to a multiple of this. Libraries prepare a matrix product for its
size, so few sizes are worth some padding."""


class ActiveRows(NamedTuple):
    """The rows of one word, one for each caption that has not ended.

    Attributes:
        here: where they are among the rows of all words.
        captions: n.
        slots: the place of each row among n captions of every image; None where all captions are
            active and in order.
        images: B.
    """

    here: slice
    captions: int
    slots: Int[Tensor, "r"] | None
    images: int

    @property
    def size(self) -> int:
        """How many rows, r."""
        return int(self.here.stop - self.here.start)

    @classmethod
    def all_of(cls, tokens: Int[Tensor, "B N"]) -> "ActiveRows":
        """The rows of all captions in their order."""
        return cls(slice(0, tokens.numel()), tokens.shape[1], None, len(tokens))

    @classmethod
    def of(cls, tokens: Int[Tensor, "B N"]) -> "ActiveRows":
        """The rows of the captions whose last token is not PAD.

        On a GPU these are all captions: fewer would save little, and counting them would make the
        host wait.
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
        """The rows at their images; zero where an image has fewer than n."""
        if self.slots is None:
            return rows.unflatten(0, (self.images, self.captions))
        spread = rows.new_zeros(self.images * self.captions, rows.shape[1])
        return spread.index_copy_(0, self.slots, rows).unflatten(0, (self.images, self.captions))

    def in_rows(self, by_image: Shaped[Tensor, "B n *X"]) -> Shaped[Tensor, "r *X"]:
        """The inverse of `by_image`."""
        flat = by_image.flatten(0, 1)
        return flat if self.slots is None else flat.index_select(0, self.slots)


class PackedWords:
    """All words of a batch in the order of the training's loop, with hardly any padding.

    The captions of all images are sorted by length, the longest first. At word t the loop reads the
    captions that have it, which are the first ones, padded to a multiple of `MULTIPLE`.

    Args:
        tokens: word ids, PAD after the end of each caption.

    Attributes:
        shape: of `tokens`.
        order: the captions in their order, numbered image by image, (B N,).
        words: the active rows of each word.
        places: where each row's word is in the flat `tokens`, (R,).
        tokens: the word ids of the rows, (R,).
    """

    def __init__(self, tokens: Int[Tensor, "B N T"]) -> None:
        self.shape = tokens.shape
        images, captions, words = tokens.shape
        lengths = (tokens != PAD).sum(dim=2).cpu()  # everything else is decided on the host
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
        """Which rows are words and not padding."""
        return (self.tokens != PAD).nonzero()[:, 0]

    def without_padding(self, rows: Float[Tensor, "R X"]) -> Float[Tensor, "r X"]:
        """The real ones of the rows."""
        return _Picked.apply(rows, self.real)

    def spread(self, rows: Float[Tensor, "r X"]) -> Float[Tensor, "B N T X"]:
        """What belongs to the real rows at the places of their words; zero elsewhere."""
        spread = rows.new_zeros(self.shape.numel(), rows.shape[1])
        return spread.index_copy(0, self.places[self.real], rows).view(*self.shape, -1)

    def by_image(self, rows: Float[Tensor, "R X"]) -> Float[Tensor, "B W X"]:
        """All rows of each image together, padded with zeros to W."""
        return torch.cat([word.by_image(rows[word.here]) for word in self.words], dim=1)


def _padded(rows: Count) -> Count:
    """The next multiple of `MULTIPLE`."""
    return -(-rows // MULTIPLE) * MULTIPLE


class _Picked(torch.autograd.Function):
    """Rows by their numbers, each at most once, so that gradients need no sums as PyTorch's do."""

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
