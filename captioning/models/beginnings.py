"""What the captions of a search have in common.

The beams of an image are few sentences that part late: many continue the same caption by different
words. All that a decoder computes before it reads these words is the same for them.

Shapes: B images, N captions per image, r of all these go on, from b beginnings.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from captioning.data.vocabulary import PAD
from captioning.models.rows import Word

WORTHWHILE = 16
"""Rows, or places for them at their images, that sharing must save: to find it takes time, too."""


class Beginnings(NamedTuple):
    """The captions that others of the same image continue, each once.

    Attributes:
        rows: of the beginnings.
        first: of each beginning, a row that continues it; none where every row has its own.
        of: of each row, its beginning; likewise.
    """

    rows: Word
    first: Int[Tensor, "b"] | None = None
    of: Int[Tensor, "r"] | None = None

    @classmethod
    def shared_by(
        cls, rows: Word, tokens: Int[Tensor, "B N"], origins: Int[Tensor, "B N"]
    ) -> "Beginnings":
        """The beginnings of the captions that go on.

        Every row has its own where sharing would save little, and on a GPU, which would have to
        wait until they are counted.

        Args:
            rows: of the captions that go on.
            tokens: the last tokens of all captions.
            origins: which of the N captions of one word ago each one continues.
        """
        images, captions = origins.shape
        if captions == 1 or origins.device.type != "cpu":
            return cls(rows)
        begun = rows.in_rows(origins + captions * torch.arange(images)[:, None])
        # Rows that only fill up need none: they get another's, and come after it.
        begun = begun.where(rows.in_rows(tokens) != PAD, begun[0])
        found, of = begun.unique(return_inverse=True)
        image = found // captions
        counts = image.bincount(minlength=images)
        most = int(counts.max())
        if max(len(begun) - len(found), images * (captions - most)) < WORTHWHILE:
            return cls(rows)
        first = of.new_full(found.shape, len(of))
        first = first.scatter_reduce(0, of, torch.arange(len(of)), "amin")
        starts = most * torch.arange(images) - (counts.cumsum(0) - counts)
        slots = torch.arange(len(found)) + starts[image]
        return cls(Word(slice(0, len(found)), most, slots, images), first, of)

    def once(self, rows: Float[Tensor, "r X"]) -> Float[Tensor, "b X"]:
        """Of rows that are alike where they share a beginning, one for each."""
        return rows if self.first is None else rows.index_select(0, self.first)

    def again(self, beginnings: Float[Tensor, "b X"]) -> Float[Tensor, "r X"]:
        """For each row what belongs to its beginning."""
        return beginnings if self.of is None else beginnings.index_select(0, self.of)
