"""The adapter between encoder and decoder: annotation vectors in, annotation vectors out.

Shapes: B images, L regions (rows x columns of a grid), D annotation width, W width after the
projection.
"""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from captioning.configurable import Configurable
from captioning.errors import InputError
from captioning.models.transformer_layers import EncoderLayer, sinusoids
from captioning.numbers import (
    AnnotationWidth,
    Grid,
    Heads,
    OptionalLayers,
    ShareBelowOne,
    Width,
)


class Adapter(Configurable, nn.Module):
    """Projects, normalises, mixes and smooths annotation vectors before the decoder sees them.

    Each part is optional and by default all are off, as in the paper. They are applied in the order
    of the arguments.

    A subclass changes `project` and `after_projection` rather than `forward`, since
    `captioning.training.GuidedAttention` calls the latter twice, with and without dropout.

    Args:
        annotation_dim: D, width of the encoder's annotation vectors.
        projection_dim: W, width of a linear projection followed by a ReLU; None to keep D.
        dropout: of the annotation vectors, and within the region layers.
        normalise: layer norm of each annotation vector. Dot-product attention needs it: with the
            many large features of a CNN it hardly learns (Cornia et al. 2020).
        region_layers: number of layers of self-attention over the regions, the encoder of Vaswani
            et al. (2017) with layer norm before each sub-layer.
        region_heads: heads of each region layer; a divisor of W.
        smooth: replace each vector by the mean over the 3 x 3 regions around it, so that no single
            region attracts attention by chance.
        grid_columns: columns of the encoder's grid, for the last two; None if it is square.

    Attributes:
        output_dim: width of the vectors it returns.

    Raises:
        InputError: heads do not divide the width.
    """

    def __init__(
        self,
        annotation_dim: AnnotationWidth,
        projection_dim: Width | None = None,
        dropout: ShareBelowOne = 0.0,
        normalise: bool = False,
        region_layers: OptionalLayers = 0,
        region_heads: Heads = 8,
        smooth: bool = False,
        grid_columns: Grid | None = None,
    ) -> None:
        super().__init__()
        self.annotation_dim = annotation_dim
        self.output_dim = projection_dim or annotation_dim
        self.project: nn.Module = (
            nn.Sequential(nn.Linear(annotation_dim, projection_dim), nn.ReLU())
            if projection_dim
            else nn.Identity()
        )
        self.dropout = nn.Dropout(dropout)
        self.norm = nn.LayerNorm(self.output_dim) if normalise else nn.Identity()
        inner_width = 4 * self.output_dim
        self.region_layers = nn.ModuleList(
            EncoderLayer(self.output_dim, region_heads, inner_width, dropout, norm_first=True)
            for _ in range(region_layers)
        )
        self.region_norm = nn.LayerNorm(self.output_dim) if region_layers else nn.Identity()
        self.smooth = smooth
        self.grid_columns = grid_columns

    def forward(
        self, annotations: Float[Tensor, "B L D"], mask: Bool[Tensor, "B L"] | None = None
    ) -> Float[Tensor, "B L W"]:
        """The adapted annotation vectors, regions in reading order.

        Args:
            annotations: from the encoder.
            mask: True where a region may be seen; None where all may. Hidden regions change no
                other region's vector.

        Raises:
            InputError: the regions do not form a grid of `grid_columns` columns.
        """
        return self.after_projection(self.project(annotations), mask)

    def after_projection(
        self, projected: Float[Tensor, "B L W"], mask: Bool[Tensor, "B L"] | None = None
    ) -> Float[Tensor, "B L W"]:
        """The rest of `forward`."""
        annotations = self.norm(self.dropout(projected))
        if self.region_layers:
            grid = grid_of(annotations.shape[1], self.grid_columns)
            annotations = annotations + grid_sinusoids(grid, annotations)
            visible = None if mask is None else mask[:, None]
            for layer in self.region_layers:
                annotations = layer(annotations, visible)
            annotations = self.region_norm(annotations)
        if self.smooth:
            annotations = neighbourhood_means(annotations, mask, self.grid_columns)
        return annotations


def grid_sinusoids(
    grid: tuple[int, int], annotations: Float[Tensor, "B L W"]
) -> Float[Tensor, "L W"]:
    """Positions of the regions: the row in the first half of the width, the column in the second.

    Parmar et al. 2018, section 3.1; Carion et al. 2020.
    """
    width = annotations.shape[2]
    precision = torch.promote_types(annotations.dtype, torch.float32)
    rows, columns = (
        torch.arange(cells, device=annotations.device, dtype=precision) for cells in grid
    )
    of_rows = sinusoids(rows, width // 2)[:, None].expand(-1, len(columns), -1)
    of_columns = sinusoids(columns, width - width // 2)[None].expand(len(rows), -1, -1)
    return torch.cat([of_rows, of_columns], dim=-1).flatten(0, 1).to(annotations.dtype)


def neighbourhood_means(
    annotations: Float[Tensor, "B L D"],
    mask: Bool[Tensor, "B L"] | None = None,
    columns: int | None = None,
) -> Float[Tensor, "B L D"]:
    """The mean of the 3 x 3 annotation vectors around each region, including its own.

    Regions beyond the edge of the grid and masked ones are left out.
    """
    grid = grid_of(annotations.shape[1], columns)
    real = annotations.new_ones(annotations.shape[:2])
    if mask is not None:
        real = mask.to(annotations.dtype)
    summed, count = (
        F.avg_pool2d(cells.transpose(1, 2).unflatten(2, grid), 3, stride=1, padding=1)
        for cells in (annotations * real[..., None], real[..., None])
    )
    means = summed / count.clamp_min(torch.finfo(count.dtype).tiny)
    return means.flatten(2).transpose(1, 2)


def grid_of(regions: int, columns: int | None) -> tuple[int, int]:
    """Rows and columns of a grid of L regions, which is square if no columns are given.

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
