"""What the captions of a search share.

The beams of an image are few sentences that part late: many continue the same caption by different
words. Everything that a decoder computes before it reads these words is the same for them.

Shapes: B images, N captions per image, r active rows, b distinct prefixes.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from captioning.data.vocabulary import PAD
from captioning.kernels.active_rows import ActiveRows

WORTHWHILE = 16
"""Rows, or places for them at their images, that sharing must save, since finding the shared
prefixes takes time as well."""


class SharedPrefixes(NamedTuple):
    """The distinct captions of one word ago that the active captions continue.

    Attributes:
        rows: of the prefixes.
        first: of each prefix, a row that continues it; None where every row has its own.
        of: of each row, its prefix; None where every row has its own.
    """

    rows: ActiveRows
    first: Int[Tensor, "b"] | None = None
    of: Int[Tensor, "r"] | None = None

    @classmethod
    def among(
        cls, rows: ActiveRows, tokens: Int[Tensor, "B N"], origins: Int[Tensor, "B N"]
    ) -> "SharedPrefixes":
        """The prefixes of the active captions.

        Every row keeps its own where sharing would save little, and on a GPU, which would have to
        wait until they are counted.

        Args:
            rows: of the active captions.
            tokens: the last tokens of all captions.
            origins: which of the N captions of one word ago each one continues.
        """
        images, captions = origins.shape
        if captions == 1 or origins.device.type != "cpu":
            return cls(rows)
        begun = rows.in_rows(origins + captions * torch.arange(images)[:, None])
        # Padding rows borrow the first row's prefix.
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
        return cls(ActiveRows(slice(0, len(found)), most, slots, images), first, of)

    def compact(self, rows: Float[Tensor, "r X"]) -> Float[Tensor, "b X"]:
        """One row for each prefix, of rows that are equal where they share one."""
        return rows if self.first is None else rows.index_select(0, self.first)

    def expand(self, prefixes: Float[Tensor, "b X"]) -> Float[Tensor, "r X"]:
        """For each row what belongs to its prefix."""
        return prefixes if self.of is None else prefixes.index_select(0, self.of)
