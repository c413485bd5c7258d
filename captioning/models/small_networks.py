"""Two small networks that train from scratch on a CPU: one for drawn scenes, one for any image."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

COLOURS = 3
"""Number of channels for the mean colour of each cell, the last ones between the stages."""


def convolution(channels: int, width: int, kernel_size: int, stride: int = 1) -> nn.Sequential:
    """Convolution, batch norm and ReLU.

    A stride of 2 needs an even kernel to keep each cell centred on its place. Three odd ones would
    shift the cells up and left by almost half a cell.
    """
    padding = (kernel_size - stride) // 2
    return nn.Sequential(
        nn.Conv2d(channels, width, kernel_size, stride, padding, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(inplace=True),
    )


class Coordinates(nn.Module):
    """Adds the row and the column of each cell, from -1 to 1 (CoordConv, Liu et al. 2018).

    In a context vector these channels are the mean place that the model looks at, so that a decoder
    can distinguish left from right.

    Args:
        squares: add their squares as well. A linear key can then match any place, since
            -(x - p)^2 = 2 p x - x^2 - p^2, not only the edges of the image.
    """

    def __init__(self, squares: bool = False) -> None:
        super().__init__()
        self.squares = squares

    def forward(self, features: Float[Tensor, "B C H W"]) -> Float[Tensor, "B C2 H W"]:
        """The features and their coordinates."""
        batch, _, height, width = features.shape
        rows = torch.linspace(-1, 1, height, device=features.device, dtype=features.dtype)
        columns = torch.linspace(-1, 1, width, device=features.device, dtype=features.dtype)
        where = torch.stack(torch.meshgrid(rows, columns, indexing="ij"))
        if self.squares:
            where = torch.cat([where, where.square()])
        return torch.cat([features, where.expand(batch, -1, -1, -1)], dim=1)


class UnitScale(nn.Module):
    """Scales each cell's vector to a mean square of one (RMSNorm, Zhang and Sennrich 2019).

    Otherwise attention settles on the cells with the largest vectors before it has learnt what to
    look for.
    """

    def forward(self, features: Float[Tensor, "B C H W"]) -> Float[Tensor, "B C H W"]:
        """The features, scaled."""
        precise = features.to(torch.promote_types(features.dtype, torch.float32))
        strength = precise.square().mean(dim=1, keepdim=True)
        return features * torch.rsqrt(strength + 1e-4).to(features.dtype)


class Gain(nn.Module):
    """Multiplies by one learnt factor.

    With small annotation vectors attention stays even for thousands of steps; with large ones it
    becomes sharp early.
    """

    def __init__(self, start: float) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(start))

    def forward(self, features: Float[Tensor, "B C H W"]) -> Float[Tensor, "B C H W"]:
        """The features, multiplied."""
        return features * self.factor


class Beside(nn.Module):
    """Concatenates the channels of two parts that see the same input."""

    def __init__(self, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.first = first
        self.second = second

    def forward(self, features: Float[Tensor, "B C H W"]) -> Float[Tensor, "B C2 H2 W2"]:
        """The channels of both."""
        first = self.first(features)
        return torch.cat([first, self.second(features).to(first.dtype)], dim=1)


class WhatAndWhere(nn.Module):
    """Annotation vectors of two parts: features around a cell, and the cell's own colour and place.

    Attention that learns from words alone soon looks at one side of an object's outline, which is
    outside the object as often as inside. Here the features spread by one cell, so that the middle
    of an object has all of them, and start smaller than the colours, which draw the attention into
    the object.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.what = nn.Sequential(
            nn.MaxPool2d(3, stride=1, padding=1),
            Coordinates(),
            nn.Conv2d(channels + 2, 128, kernel_size=1),
            nn.ReLU(inplace=True),
            UnitScale(),
            Gain(1.0),
        )
        self.where = nn.Sequential(
            convolution(COLOURS, 64, kernel_size=1),
            nn.Conv2d(64, 64, kernel_size=1),
            nn.ReLU(inplace=True),
            UnitScale(),
            Coordinates(squares=True),
            Gain(8.0),
        )

    def forward(self, features: Float[Tensor, "B C H W"]) -> Float[Tensor, "B C2 H W"]:
        """Features, colours and coordinates."""
        what, where = features[:, :-COLOURS], features[:, -COLOURS:]
        return torch.cat([self.what(what), self.where(where)], dim=1)


class SmallCNN(nn.Module):
    """Five convolutions of stride 8 in all: 64 pixels give 8 x 8 annotation vectors of width 196.

    The last channels are the colour of the cell and its coordinates: an annotation vector says what
    is there, and where.
    """

    def __init__(self) -> None:
        super().__init__()
        outlines = nn.Sequential(
            convolution(3, 32, kernel_size=4, stride=2),
            convolution(32, 64, kernel_size=4, stride=2),
            convolution(64, 64, kernel_size=3),
            convolution(64, 128, kernel_size=2, stride=2),
            convolution(128, 128, kernel_size=3),
        )
        self.features = nn.Sequential(
            Beside(outlines, nn.AvgPool2d(8)),
            WhatAndWhere(128),
        )


class ResidualBlock(nn.Module):
    """Two convolutions that add to what they see (He et al. 2016, figure 2)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            *convolution(channels, channels, kernel_size=3),
            nn.Conv2d(channels, channels, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
        )

    def forward(self, features: Float[Tensor, "B C H W"]) -> Float[Tensor, "B C H W"]:
        """The features plus the residual."""
        return torch.relu(features + self.residual(features))


class PlainCNN(nn.Module):
    """Three stages that halve rows and columns: 80 pixels give 10 x 10 annotation vectors.

    An ordinary network for small images of any kind.
    """

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            convolution(3, 32, kernel_size=4, stride=2),
            nn.Sequential(*convolution(32, 64, kernel_size=4, stride=2), ResidualBlock(64)),
            nn.Sequential(
                *convolution(64, 128, kernel_size=4, stride=2),
                ResidualBlock(128),
                ResidualBlock(128),
            ),
        )
