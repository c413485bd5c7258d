"""The regions that are hidden together where a map is made by hiding regions.

Shapes: L regions (rows x columns), W windows.
"""

import torch
from jaxtyping import Bool
from torch import Tensor

SIDE = 3
"""Rows and columns of the regions that are hidden together, fewer at the edge."""


def windows(grid: tuple[int, int]) -> Bool[Tensor, "W L"]:
    """For each region what is hidden with it: itself and, on larger grids, all around it."""
    rows, columns = (torch.arange(cells) for cells in grid)
    tall, wide = (SIDE // 2 if cells > SIDE else 0 for cells in grid)
    near_rows = (rows[:, None] - rows).abs() <= tall
    near_columns = (columns[:, None] - columns).abs() <= wide
    near = near_rows[:, None, :, None] & near_columns[None, :, None, :]
    found = near.reshape(len(rows) * len(columns), -1)
    return found & ~found.all(dim=1, keepdim=True)  # one region at least is always seen
