"""Maps made by hiding regions: what a word loses without them (Zeiler and Fergus 2014).

Shapes: B images, N captions per image, L regions (rows x columns), T words, W windows.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from captioning.maps.attention_maps import weights_by_norm
from captioning.maps.reading import Reading
from captioning.maps.word_map import Maps, WordMap, shares

SIDE = 3
"""Rows and columns of the regions that are hidden together, fewer at the edge."""


class OcclusionMap(WordMap):
    """The fall of the word's log probability where the 3 x 3 regions around each one are hidden.

    They are hidden from the caption's first word on, so that the decoder's state holds nothing of
    them. A rise counts as none.
    """

    @torch.no_grad()
    def __call__(self, reading: Reading) -> Maps:
        """The positive part of the falls, as shares."""
        reading.need_one_grid()
        return shares(falls(reading), reading.grid)


class OcclusionNormMap(WordMap):
    """The fall by hiding regions, times attention times norm: both have to name a region."""

    @torch.no_grad()
    def __call__(self, reading: Reading) -> Maps:
        """The product, as shares."""
        reading.need_one_grid()
        return shares(falls(reading).clamp(min=0) * weights_by_norm(reading), reading.grid)


def falls(reading: Reading) -> Float[Tensor, "B N T L"]:
    """The fall of each word's log probability without the regions around each one."""
    batch = len(reading.annotations)
    whole = reading.word_log_probs(reading.annotations)
    without = [
        reading.word_log_probs(reading.annotations, (~window).expand(batch, -1))
        for window in windows(reading.grid).to(reading.annotations.device)
    ]
    return whole[..., None] - torch.stack(without, dim=-1)


def windows(grid: tuple[int, int]) -> Bool[Tensor, "W L"]:
    """For each region what is hidden with it: itself and, on larger grids, all around it."""
    rows, columns = (torch.arange(cells) for cells in grid)
    tall, wide = (SIDE // 2 if cells > SIDE else 0 for cells in grid)
    near_rows = (rows[:, None] - rows).abs() <= tall
    near_columns = (columns[:, None] - columns).abs() <= wide
    near = near_rows[:, None, :, None] & near_columns[None, :, None, :]
    found = near.reshape(len(rows) * len(columns), -1)
    return found & ~found.all(dim=1, keepdim=True)  # one region at least is always seen
