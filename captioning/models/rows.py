"""The words of a batch as rows, of the captions only that have them.

Shapes: B images, N captions per image, T words, R words that are read, r of them those of one place
in their captions, n the most captions that one image has among these.
"""

from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple, TypeVar

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from captioning.data.vocabulary import PAD

Count = TypeVar("Count", int, Tensor)

FILLED = 16
"""The rows of a word are a multiple of this: libraries prepare a matrix product for its size, so
few sizes are worth some padding."""


class Word(NamedTuple):
    """The rows that are read together: one word of every caption that has so many.

    Attributes:
        here: where they are among all rows.
        captions: n.
        slots: of each row among n captions of every image; none where the rows are these in order.
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
    def of_all(cls, tokens: Int[Tensor, "B N"]) -> "Word":
        """The rows of all captions in their order."""
        return cls(slice(0, tokens.numel()), tokens.shape[1], None, len(tokens))

    @classmethod
    def going_on(cls, tokens: Int[Tensor, "B N"]) -> "Word":
        """The rows of the captions that go on, by the last token of all: PAD where one has ended.

        On a GPU these are all captions: fewer would save it little, and to count them it would have
        to wait.
        """
        everything = cls.of_all(tokens)
        if tokens.device.type != "cpu":
            return everything
        ended = tokens.flatten() == PAD
        rows = _filled(len(ended) - int(ended.sum()))
        if rows >= len(ended):
            return everything
        slots = ended.int().argsort(stable=True)[:rows]
        return everything._replace(here=slice(0, rows), slots=slots)

    def by_image(self, rows: Shaped[Tensor, "r X"]) -> Shaped[Tensor, "B n X"]:
        """The rows at their images; zero where an image has fewer."""
        if self.slots is None:
            return rows.unflatten(0, (self.images, self.captions))
        spread = rows.new_zeros(self.images * self.captions, rows.shape[1])
        return spread.index_copy_(0, self.slots, rows).unflatten(0, (self.images, self.captions))

    def in_rows(self, by_image: Shaped[Tensor, "B n *X"]) -> Shaped[Tensor, "r *X"]:
        """The inverse of `by_image`."""
        flat = by_image.flatten(0, 1)
        return flat if self.slots is None else flat.index_select(0, self.slots)


class Rows:
    """Words in the order of the loop, with hardly any padding.

    The captions of all images are sorted by length, the longest first. Of word t the loop reads the
    captions that have it, which are the first ones, filled up to a multiple of `FILLED`.

    Args:
        tokens: word ids, PAD after the end of each caption.

    Attributes:
        shape: of `tokens`.
        order: the captions in their order, numbered image by image, (B N,).
        words: the rows of each word.
        places: where each row's word is in the flat `tokens`, (R,).
        tokens: the word ids of the rows, (R,).
    """

    def __init__(self, tokens: Int[Tensor, "B N T"]) -> None:
        self.shape = tokens.shape
        images, captions, words = tokens.shape
        lengths = (tokens != PAD).sum(dim=2).cpu()  # all else is decided on the host
        order = lengths.flatten().argsort(descending=True, stable=True)
        ranks = lengths.argsort(dim=1, descending=True, stable=True).argsort(dim=1)
        image, rank = order // captions, ranks.flatten()[order]
        longest = int(lengths.max()) if lengths.numel() else 0
        running = (lengths.flatten() > torch.arange(longest)[:, None]).sum(1)
        counts = _filled(running).clamp(max=len(order)).tolist()
        widths = (rank.cummax(0).values + 1).tolist()
        slots = [image[:r] * widths[r - 1] + rank[:r] for r in counts]
        places = [order[:r] * words + word for word, r in enumerate(counts)]
        none = order.new_empty(0)
        self.order, at, self.places = (
            part.to(tokens.device)
            for part in (order, torch.cat([none, *slots]), torch.cat([none, *places]))
        )
        self.words = [
            Word(slice(end - r, end), widths[r - 1], at[end - r : end], images)
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
        """All rows of each image together, W of them with zeros."""
        return torch.cat([word.by_image(rows[word.here]) for word in self.words], dim=1)


def _filled(rows: Count) -> Count:
    """So many, filled up."""
    return -(-rows // FILLED) * FILLED


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
