"""Means over the regions around each region.

Shapes: B images, L regions (rows x columns of a grid), D annotation width.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from captioning.models.positions import grid_of

SIDE = 3
"""Rows, and columns, of a neighbourhood."""


def neighbourhood_means(
    annotations: Float[Tensor, "B L D"],
    mask: Bool[Tensor, "B L"] | None = None,
    columns: int | None = None,
) -> Float[Tensor, "B L D"]:
    """The mean of the 3 x 3 annotation vectors around each region, its own among them.

    Those beyond the edge of the grid and those that are masked do not count.

    Args:
        annotations: in reading order.
        mask: True where a region may be seen; None where all may.
        columns: of the grid; none if it is square.

    Raises:
        InputError: the regions fill no such grid.
    """
    grid = grid_of(annotations.shape[1], columns)
    real = annotations.new_ones(annotations.shape[:2])
    if mask is not None:
        real = mask.to(annotations.dtype)
    summed, count = (
        F.avg_pool2d(cells.transpose(1, 2).unflatten(2, grid), SIDE, stride=1, padding=SIDE // 2)
        for cells in (annotations * real[..., None], real[..., None])
    )
    means = summed / count.clamp_min(torch.finfo(count.dtype).tiny)
    return means.flatten(2).transpose(1, 2)
