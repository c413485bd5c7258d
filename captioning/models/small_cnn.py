"""The network that the shapes are learnt with, from scratch, in minutes on a CPU."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

COLOURS = 3
"""The last channels between the stages: the mean colour of each cell."""


class Coordinates(nn.Module):
    """Adds two channels, the row and the column of each cell from -1 to 1.

    What Liu et al. (2018, CoordConv) give to a convolution is useful to attention too: these
    channels of a context vector are the place that the model looks at, on average, so that a
    decoder can tell left from right.

    Args:
        squares: add their squares as well. A linear key then has a query for every place, as
            -(x - p)^2 = 2 p x - x^2 - p^2, and not for the edges of the image alone.
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
    """Gives each cell's vector a mean square of one (Zhang and Sennrich 2019, RMSNorm).

    Attention compares cells by their vectors, and where some are several times as strong as others
    it settles on these before it has learnt what to look for.
    """

    def forward(self, features: Float[Tensor, "B C H W"]) -> Float[Tensor, "B C H W"]:
        """The features, scaled."""
        precise = features.to(torch.promote_types(features.dtype, torch.float32))
        strength = precise.square().mean(dim=1, keepdim=True)
        return features * torch.rsqrt(strength + 1e-4).to(features.dtype)


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


class Beside(nn.Module):
    """Two parts that see the same, one's channels after the other's.

    Args:
        first: gives the first channels.
        second: gives the last channels, with the same rows and columns.
    """

    def __init__(self, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.first = first
        self.second = second

    def forward(self, features: Float[Tensor, "B C H W"]) -> Float[Tensor, "B C2 H2 W2"]:
        """The channels of both."""
        first = self.first(features)
        return torch.cat([first, self.second(features).to(first.dtype)], dim=1)


class WhatAndWhere(nn.Module):
    """Annotation vectors of two parts: what is seen around a cell, and the cell's own colour.

    An object's shape can be read off any piece of its outline, its colour anywhere within. Trained
    on words alone, an attention over features that see both soon looks at one side of the outline,
    which is beside the object as often as in it. Here the outline's features spread by one cell,
    so that the middle of an object has all of them, and start fainter than the colours, which
    draw the attention into the object.

    Args:
        channels: of the features.
        what: strength of the features before training.
        where: strength of colours and coordinates before training.
    """

    def __init__(self, channels: int, what: float, where: float) -> None:
        super().__init__()
        self.what = nn.Sequential(
            nn.MaxPool2d(3, stride=1, padding=1),
            Coordinates(),
            nn.Conv2d(channels + 2, 128, kernel_size=1),
            nn.ReLU(inplace=True),
            UnitScale(),
            Gain(what),
        )
        self.where = nn.Sequential(
            _block(COLOURS, 64, kernel_size=1),
            nn.Conv2d(64, 64, kernel_size=1),
            nn.ReLU(inplace=True),
            UnitScale(),
            Coordinates(squares=True),
            Gain(where),
        )

    def forward(self, features: Float[Tensor, "B C H W"]) -> Float[Tensor, "B C2 H W"]:
        """Features, colours and coordinates."""
        what, where = features[:, :-COLOURS], features[:, -COLOURS:]
        return torch.cat([self.what(what), self.where(where)], dim=1)


def _block(in_channels: int, out_channels: int, kernel_size: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(in_channels, out_channels, kernel_size, padding=kernel_size // 2, bias=False),
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


class SmallCNN(nn.Module):
    """Five convolutions of stride 8 in all: 64 pixels give 8 x 8 annotation vectors of width 196.

    The last channels are the colour of the cell and its coordinates: an annotation vector says what
    is there, and where.
    """

    def __init__(self) -> None:
        super().__init__()
        outlines = nn.Sequential(
            _halving_block(3, 32, kernel_size=4),
            _halving_block(32, 64, kernel_size=4),
            _block(64, 64, kernel_size=3),
            _halving_block(64, 128, kernel_size=2),
            _block(128, 128, kernel_size=3),
        )
        self.features = nn.Sequential(
            Beside(outlines, nn.AvgPool2d(8)),
            WhatAndWhere(128, what=1.0, where=8.0),
        )
