"""An ordinary convolutional network for small images, trained from scratch on a CPU core."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

WIDTHS = (32, 64, 128)
"""Channels of each stage."""

BLOCKS = (0, 1, 2)
"""Residual blocks of each stage."""


class ResidualBlock(nn.Module):
    """Two convolutions that add to what they see (He et al. 2016, figure 2).

    Args:
        channels: of input and output.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            nn.Conv2d(channels, channels, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(inplace=True),
            nn.Conv2d(channels, channels, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
        )

    def forward(self, features: Float[Tensor, "B C H W"]) -> Float[Tensor, "B C H W"]:
        """The features and what the convolutions find in them."""
        return torch.relu(features + self.residual(features))


class PlainCNN(nn.Module):
    """Three stages that halve rows and columns: 80 pixels give 10 x 10 annotation vectors.

    Nothing in it is made for drawn scenes. Each stage is a convolution of stride 2 and residual
    blocks. The stride is that of an even kernel, 4 wide: an odd one would move the cells up and
    left, three of them by almost half a cell.
    """

    def __init__(self) -> None:
        super().__init__()
        stages = []
        for i, (width, blocks) in enumerate(zip(WIDTHS, BLOCKS, strict=True)):
            halving = [
                nn.Conv2d(
                    WIDTHS[i - 1] if i else 3, width, kernel_size=4, stride=2, padding=1, bias=False
                ),
                nn.BatchNorm2d(width),
                nn.ReLU(inplace=True),
            ]
            stages.append(nn.Sequential(*halving, *(ResidualBlock(width) for _ in range(blocks))))
        self.features = nn.Sequential(*stages)
