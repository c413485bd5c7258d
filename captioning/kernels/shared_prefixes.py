"""The prefixes that the captions of a search share.

Beams of an image diverge late: many continue the same prefix by different words. Everything that a
decoder computes before it reads these words is the same for them.

Shapes: B images, N captions per image, r active rows, b distinct prefixes.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from captioning.data.vocabulary import PAD
from captioning.kernels.active_rows import ActiveRows

WORTHWHILE = 16
"""The fewest rows, or padded rows by image, that sharing must save, since finding shared prefixes
takes time as well."""


class SharedPrefixes(NamedTuple):
    """The distinct prefixes, one word shorter, of the active captions.

    Attributes:
        rows: the rows of the prefixes.
        first: for each prefix, a row that continues it; None if every row has its own prefix.
        of: for each row, its prefix; None if every row has its own prefix.
    """

    rows: ActiveRows
    first: Int[Tensor, "b"] | None = None
    of: Int[Tensor, "r"] | None = None

    @classmethod
    def among(
        cls, rows: ActiveRows, tokens: Int[Tensor, "B N"], origins: Int[Tensor, "B N"]
    ) -> "SharedPrefixes":
        """The prefixes of the active captions.

        Every row keeps its own prefix if sharing would save little, and on a GPU, which would have
        to wait for the count.

        Args:
            rows: of the active captions.
            tokens: the last tokens of all captions.
            origins: for each caption, the index of the caption that it continues.
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
        """One row per prefix, from rows that are equal if they share a prefix."""
        return rows if self.first is None else rows.index_select(0, self.first)

    def expand(self, prefixes: Float[Tensor, "b X"]) -> Float[Tensor, "r X"]:
        """For each row, the row of its prefix."""
        return prefixes if self.of is None else prefixes.index_select(0, self.of)
