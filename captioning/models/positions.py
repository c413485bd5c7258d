"""Sinusoidal positions: the order of words and the place of regions, for transformers.

Shapes: T words, L regions (rows x columns of a grid), W width.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from captioning.errors import InputError

LONGEST_WAVE = 10_000.0
"""The slowest wave repeats after 2 pi times this many positions (Vaswani et al. 2017)."""


def sinusoids(positions: Float[Tensor, "T"], width: int) -> Float[Tensor, "T W"]:
    """Sine and cosine of each position, in turn, at falling frequencies.

    PE(p, 2i) = sin(p / 10000^(2i / W)) and PE(p, 2i + 1) = cos(p / 10000^(2i / W)) (Vaswani et al.
    2017, section 3.5).

    Args:
        positions: counted from 0; fractions are positions, too.
        width: W.
    """
    pairs = torch.arange((width + 1) // 2, device=positions.device, dtype=positions.dtype)
    angles = positions[:, None] * LONGEST_WAVE ** (-2 * pairs / width)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)[:, :width]


def grid_sinusoids(
    rows: Float[Tensor, "rows"], columns: Float[Tensor, "columns"], width: int
) -> Float[Tensor, "L W"]:
    """The row of a region in the first half of the width, its column in the second half.

    The regions are in reading order (Parmar et al. 2018, section 3.1; Carion et al. 2020).

    Args:
        rows: positions of the rows.
        columns: positions of the columns.
        width: W.
    """
    of_rows = sinusoids(rows, width // 2)[:, None].expand(-1, len(columns), -1)
    of_columns = sinusoids(columns, width - width // 2)[None].expand(len(rows), -1, -1)
    return torch.cat([of_rows, of_columns], dim=-1).flatten(0, 1)


def grid_of(regions: int, columns: int | None) -> tuple[int, int]:
    """Rows and columns of a grid of this many regions.

    Args:
        regions: L.
        columns: of the grid; None if it is square.

    Raises:
        InputError: the regions do not form such a grid.
    """
    if columns is None:
        side = math.isqrt(regions)
        if side * side != regions:
            raise InputError(
                f"{regions} regions do not form a square grid; give grid_columns, the columns of "
                "the encoder's grid"
            )
        return side, side
    if regions % columns:
        raise InputError(
            f"grid_columns: {regions} regions do not form {columns} columns; give the columns "
            "of the encoder's grid"
        )
    return regions // columns, columns
