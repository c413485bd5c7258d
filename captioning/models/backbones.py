"""The network that the shapes are learnt with, from scratch, in minutes on two CPU cores."""

import torch
from jaxtyping import Float
from torch import Tensor, nn


class CoordinateConv(nn.Conv2d):
    """A convolution that also sees where it is (Liu et al. 2018, CoordConv).

    Two channels are added to its input: the row and the column of each cell, from -1 to 1.
    """

    def __init__(self, in_channels: int, out_channels: int, **kwargs: int) -> None:
        super().__init__(in_channels + 2, out_channels, **kwargs)  # type: ignore[arg-type]

    def forward(self, input: Float[Tensor, "B C H W"]) -> Float[Tensor, "B C2 H2 W2"]:
        """The convolution of the input with its coordinates."""
        batch, _, height, width = input.shape
        rows = torch.linspace(-1, 1, height, device=input.device, dtype=input.dtype)
        columns = torch.linspace(-1, 1, width, device=input.device, dtype=input.dtype)
        where = torch.stack(torch.meshgrid(rows, columns, indexing="ij")).expand(batch, -1, -1, -1)
        return super().forward(torch.cat([input, where], dim=1))


def _block(in_channels: int, out_channels: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(in_channels, out_channels, 3, stride, padding=1, bias=False),
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
    """Six convolutions of stride 8 in all: 64 pixels give 8 x 8 annotation vectors of width 128.

    The last convolution sees the coordinates, so that an annotation vector says what is there
    and also where that is.
    """

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            _block(3, 32, stride=2),
            _block(32, 64, stride=2),
            _block(64, 64),
            _block(64, 128, stride=2),
            _block(128, 128),
            nn.Sequential(
                CoordinateConv(128, 128, kernel_size=1), nn.ReLU(inplace=True), Gain(16.0)
            ),
        )
