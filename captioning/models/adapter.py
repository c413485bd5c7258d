"""The adapter between encoder and decoder: annotation vectors in, annotation vectors out.

Shapes: B images, L regions of a square grid, D annotation width, W width after the projection.
"""

import math
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from captioning.configurable import Configurable
from captioning.errors import InputError
from captioning.models.transformer import EncoderLayer, sinusoids


class Adapter(Configurable, nn.Module):
    """Projects, normalises and mixes annotation vectors for the decoder.

    By default all parts are off, as in the paper. They are applied in the order of the arguments.

    Args:
        annotation_dim: D.
        projection_dim: W, width of a linear projection followed by a ReLU; None to keep D.
        dropout: of the annotation vectors, and within the region layers.
        normalise: layer norm of each annotation vector. Dot-product attention needs it: with the
            many large features of a CNN it hardly learns (Cornia et al. 2020).
        region_layers: number of layers of self-attention over the regions, the encoder of Vaswani
            et al. (2017). The grid must be square.
        region_heads: heads of each region layer; a divisor of W.

    Attributes:
        output_dim: W.
    """

    limits: ClassVar = {"region_layers": range(101), "region_heads": range(1, 257)}
    removed: ClassVar = {"smooth": False, "grid_columns": None}

    def __init__(
        self,
        annotation_dim: int,
        projection_dim: int | None = None,
        dropout: float = 0.0,
        normalise: bool = False,
        region_layers: int = 0,
        region_heads: int = 8,
    ) -> None:
        super().__init__()
        self.annotation_dim = annotation_dim
        self.output_dim = width = projection_dim or annotation_dim
        projection = [nn.Linear(annotation_dim, width), nn.ReLU()] if projection_dim else []
        self.project = nn.Sequential(*projection)
        self.dropout = nn.Dropout(dropout)
        self.norm = nn.LayerNorm(width) if normalise else nn.Identity()
        self.region_layers = nn.ModuleList(
            EncoderLayer(width, region_heads, inner_width=4 * width, dropout=dropout)
            for _ in range(region_layers)
        )
        self.region_norm = nn.LayerNorm(width) if region_layers else nn.Identity()

    def forward(
        self, annotations: Float[Tensor, "B L D"], mask: Bool[Tensor, "B L"] | None = None
    ) -> Float[Tensor, "B L W"]:
        """Adapt annotation vectors, regions in reading order.

        Regions where the mask is false have no effect on other regions.
        """
        annotations = self.norm(self.dropout(self.project(annotations)))
        if self.region_layers:
            annotations = annotations + grid_sinusoids(annotations)
            layer_mask = None if mask is None else mask[:, None]
            for layer in self.region_layers:
                annotations = layer(annotations, layer_mask)
        return self.region_norm(annotations)


def grid_sinusoids(annotations: Float[Tensor, "B L W"]) -> Float[Tensor, "L W"]:
    """Positions of the regions: the row in the first half of the width, the column in the second.

    Parmar et al. 2018, section 3.1; Carion et al. 2020.

    Raises:
        InputError: the regions do not form a square grid.
    """
    regions, width = annotations.shape[1:]
    side = math.isqrt(regions)
    if side * side != regions:
        raise InputError(f"region layers need a square grid, which {regions} regions do not form")
    precision = torch.promote_types(annotations.dtype, torch.float32)
    positions = torch.arange(side, device=annotations.device, dtype=precision)
    rows = sinusoids(positions, width // 2)[:, None].expand(-1, side, -1)
    columns = sinusoids(positions, width - width // 2)[None].expand(side, -1, -1)
    return torch.cat([rows, columns], dim=-1).flatten(0, 1).to(annotations.dtype)
