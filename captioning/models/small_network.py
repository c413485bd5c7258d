"""A small network for drawn scenes that trains from scratch on a CPU."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F


def convolution(channels: int, width: int, kernel_size: int, stride: int = 1) -> nn.Sequential:
    """Convolution, batch norm and ReLU.

    With a stride of 2, an even kernel keeps cells centred. Three odd kernels would shift them up
    and left by almost half a cell.
    """
    padding = (kernel_size - stride) // 2
    return nn.Sequential(
        nn.Conv2d(channels, width, kernel_size, stride, padding, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(inplace=True),
    )


class SmallCNN(nn.Module):
    """Convolutions of total stride 8: 64 x 64 pixels give 8 x 8 annotation vectors of width 196.

    An annotation vector has features of the outlines, and of the colour and coordinates of its
    cell.
    """

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(OutlinesAndColours(), WhatAndWhere())


class OutlinesAndColours(nn.Module):
    """Features of the outlines around each cell, and the cell's mean colour as three channels."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(
            convolution(3, 32, kernel_size=4, stride=2),
            convolution(32, 64, kernel_size=4, stride=2),
            convolution(64, 64, kernel_size=3),
            convolution(64, 128, kernel_size=2, stride=2),
            convolution(128, 128, kernel_size=3),
        )

    def forward(self, images: Float[Tensor, "B 3 H W"]) -> Float[Tensor, "B C rows columns"]:
        outlines = self.first(images)
        return torch.cat([outlines, F.avg_pool2d(images, 8).to(outlines.dtype)], dim=1)


class WhatAndWhere(nn.Module):
    """Annotation vectors of two parts: features around a cell, and its colour and coordinates.

    Attention that learns from words alone soon looks at one side of an object's outline, outside
    the object as often as inside. Here the features spread by one cell, so that the middle of an
    object has all of them, and start smaller than the colours, which draw the attention into the
    object. With small vectors attention stays even for thousands of steps; with large ones it
    becomes sharp early.
    """

    def __init__(self) -> None:
        super().__init__()
        self.what = nn.Sequential(
            nn.MaxPool2d(3, stride=1, padding=1),
            Coordinates(),
            nn.Conv2d(128 + 2, 128, kernel_size=1),
            nn.ReLU(inplace=True),
            UnitScale(),
            Gain(1.0),
        )
        self.where = nn.Sequential(
            convolution(3, 64, kernel_size=1),
            nn.Conv2d(64, 64, kernel_size=1),
            nn.ReLU(inplace=True),
            UnitScale(),
            Coordinates(squares=True),
            Gain(8.0),
        )

    def forward(self, features: Float[Tensor, "B C H W"]) -> Float[Tensor, "B C2 H W"]:
        what, where = features[:, :-3], features[:, -3:]
        return torch.cat([self.what(what), self.where(where)], dim=1)


class Coordinates(nn.Module):
    """Adds the row and the column of each cell, from -1 to 1 (CoordConv, Liu et al. 2018).

    Args:
        squares: add squares of the coordinates. A linear key can then match any position, not only
            the edges of the image, since -(x - p)^2 = 2 p x - x^2 - p^2.
    """

    def __init__(self, squares: bool = False) -> None:
        super().__init__()
        self.squares = squares

    def forward(self, features: Float[Tensor, "B C H W"]) -> Float[Tensor, "B C2 H W"]:
        options: Any = {"device": features.device, "dtype": features.dtype}
        axes = (torch.linspace(-1, 1, side, **options) for side in features.shape[2:])
        coordinates = torch.stack(torch.meshgrid(*axes, indexing="ij"))
        if self.squares:
            coordinates = torch.cat([coordinates, coordinates.square()])
        return torch.cat([features, coordinates.expand(features.shape[0], -1, -1, -1)], dim=1)


class UnitScale(nn.Module):
    """Scales each cell's vector to a mean square of one (RMSNorm, Zhang and Sennrich 2019).

    Otherwise attention settles early on the cells with the largest vectors.
    """

    def forward(self, features: Float[Tensor, "B C H W"]) -> Float[Tensor, "B C H W"]:
        precise = features.to(torch.promote_types(features.dtype, torch.float32))
        mean_square = precise.square().mean(dim=1, keepdim=True)
        return features * torch.rsqrt(mean_square + 1e-4).to(features.dtype)


class Gain(nn.Module):
    """Multiplies by one learnt factor."""

    def __init__(self, start: float) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(start))

    def forward(self, features: Float[Tensor, "B C H W"]) -> Float[Tensor, "B C H W"]:
        return features * self.factor
