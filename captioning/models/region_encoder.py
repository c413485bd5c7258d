"""Self-attention over the regions of an image, before any word is written.

Shapes: B images, L regions, W width.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from captioning.models.attention_masks import padding_mask
from captioning.models.positions import grid_of, grid_sinusoids
from captioning.models.transformer_layers import EncoderLayer


class RegionEncoder(nn.Module):
    """Lets every region look at all others: the encoder of Vaswani et al. (2017) over a grid.

    It belongs to what a decoder remembers of an image. So it follows what is cached of a frozen
    encoder, learns at the decoder's rate, and sees the mask: what is hidden from the decoder is
    hidden from it.

    Args:
        width: W, of the annotation vectors.
        layers: how many.
        heads: of each layer; a divisor of the width.
        inner_width: of the position-wise networks.
        dropout: of weights, of hidden layers and of what each sub-layer adds.
        norm_first: layer norm before each sub-layer, and once at the end; after each if not.
        grid_columns: columns of the encoder's grid; none if it is square.
    """

    def __init__(
        self,
        width: int,
        layers: int,
        heads: int,
        inner_width: int,
        dropout: float = 0.0,
        norm_first: bool = True,
        grid_columns: int | None = None,
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            EncoderLayer(width, heads, inner_width, dropout, norm_first) for _ in range(layers)
        )
        self.norm = nn.LayerNorm(width) if norm_first else nn.Identity()
        self.grid_columns = grid_columns

    def forward(
        self, annotations: Float[Tensor, "B L W"], mask: Bool[Tensor, "B L"] | None = None
    ) -> Float[Tensor, "B L W"]:
        """Annotation vectors that know of each other and of their places.

        Raises:
            InputError: the regions are no grid of so many columns.
        """
        regions, width = annotations.shape[1:]
        precision = torch.promote_types(annotations.dtype, torch.float32)
        rows, columns = (
            torch.arange(cells, device=annotations.device, dtype=precision)
            for cells in grid_of(regions, self.grid_columns)
        )
        places = grid_sinusoids(rows, columns, width)
        encoded = annotations + places.to(annotations.dtype)
        for layer in self.layers:
            encoded = layer(encoded, padding_mask(mask))
        return self.norm(encoded)
