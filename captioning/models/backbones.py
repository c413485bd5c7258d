"""The network that the shapes are learnt with, from scratch, in minutes on two CPU cores."""

import torch
from jaxtyping import Float
from torch import Tensor, nn


class Coordinates(nn.Module):
    """Adds two channels, the row and the column of each cell from -1 to 1.

    What Liu et al. (2018, CoordConv) give to a convolution is useful to attention too: these
    channels of a context vector are the place that the model looks at, on average, so that a
    decoder can tell left from right.
    """

    def forward(self, features: Float[Tensor, "B C H W"]) -> Float[Tensor, "B C2 H W"]:
        """The features and their coordinates."""
        batch, _, height, width = features.shape
        rows = torch.linspace(-1, 1, height, device=features.device, dtype=features.dtype)
        columns = torch.linspace(-1, 1, width, device=features.device, dtype=features.dtype)
        where = torch.stack(torch.meshgrid(rows, columns, indexing="ij"))
        return torch.cat([features, where.expand(batch, -1, -1, -1)], dim=1)


def _block(in_channels: int, out_channels: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(in_channels, out_channels, kernel_size=3, padding=1, bias=False),
        nn.BatchNorm2d(out_channels),
        nn.ReLU(inplace=True),
    )


def _halving_block(in_channels: int, out_channels: int, kernel_size: int) -> nn.Sequential:
    """Half the rows and columns, by an even kernel: an odd one moves the cells up and left.

    Each cell then looks at the middle of its own place in the image, over which its attention is
    drawn; three halvings by odd kernels would look almost half a cell beside it.
    """
    return nn.Sequential(
        nn.Conv2d(
            in_channels,
            out_channels,
            kernel_size,
            stride=2,
            padding=kernel_size // 2 - 1,
            bias=False,
        ),
        nn.BatchNorm2d(out_channels),
        nn.ReLU(inplace=True),
    )


class Gain(nn.Module):
    """Multiplies by one learnt factor.

    A decoder that starts with faint annotation vectors attends to all regions alike for thousands
    of steps; strong ones let the attention become sharp early.

    Args:
        start: the factor before training.
    """

    def __init__(self, start: float) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(start))

    def forward(self, features: Float[Tensor, "B C H W"]) -> Float[Tensor, "B C H W"]:
        """The features, multiplied."""
        return features * self.factor


class SmallCNN(nn.Module):
    """Six convolutions of stride 8 in all: 64 pixels give 8 x 8 annotation vectors of width 130.

    The last two channels are coordinates: an annotation vector says what is there, and where.
    """

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            _halving_block(3, 32, kernel_size=4),
            _halving_block(32, 64, kernel_size=4),
            _block(64, 64),
            _halving_block(64, 128, kernel_size=2),
            _block(128, 128),
            nn.Sequential(
                Coordinates(),
                nn.Conv2d(130, 128, kernel_size=1),
                nn.ReLU(inplace=True),
                Coordinates(),
                Gain(16.0),
            ),
        )
