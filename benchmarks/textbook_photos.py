"""Photos and CNN the way that the well-known tutorials write them, for comparison."""

import copy
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, UInt8
from PIL import Image
from torch import Tensor, nn

from captioning.models import CNNEncoder


def read_photo(path: Path, side: int) -> UInt8[Tensor, "3 S S"]:
    """The largest square in the middle of a photo, decoded whole and scaled to `side` pixels."""
    photo = Image.open(path).convert("RGB")
    edge = min(photo.size)
    left, top = (photo.width - edge) / 2, (photo.height - edge) / 2
    box = (left, top, left + edge, top + edge)
    photo = photo.resize((side, side), Image.Resampling.BILINEAR, box=box)
    return torch.from_numpy(np.array(photo)).permute(2, 0, 1)


class TextbookEncoder(nn.Module):
    """The convolutional layers of torchvision's network as they are.

    Args:
        encoder: ours, whose layers and parameters are copied.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, encoder: CNNEncoder) -> None:
        super().__init__()
        self.layers = nn.Sequential(*copy.deepcopy(list(encoder.stages)), encoder.pool)
        self.layers.to(memory_format=torch.contiguous_format)
        self.register_buffer("mean", encoder.mean.clone())
        self.register_buffer("std", encoder.std.clone())
        self.eval()

    def forward(self, images: UInt8[Tensor, "B 3 S S"]) -> Float[Tensor, "B L D"]:
        """Annotation vectors."""
        features = self.layers((images.contiguous() - self.mean) / self.std)
        return features.permute(0, 2, 3, 1).flatten(1, 2)
