"""Several encoders as one, for ensembles whose members differ in encoder or preprocessing.

Shapes: B images, H x W pixels, S side of an encoder's image, L regions, D annotation width.
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from math import prod
from pathlib import Path
from typing import cast

import torch
from jaxtyping import Float, UInt8
from PIL.Image import Image
from torch import Tensor, nn
from torch.nn import functional as F

from captioning.data.images import Upload
from captioning.data.preprocessing import Preprocessing, View
from captioning.models.encoder import Encoder


class SideBySide(Preprocessing):
    """The images of several preprocessings as one, from left to right.

    All show the same square of the photo, each at its own size; smaller ones are padded with zeros
    below.

    Args:
        parts: the preprocessings.
    """

    def __init__(self, parts: Sequence[Preprocessing]) -> None:
        super().__init__(max(part.size for part in parts))
        self.parts = parts

    def __call__(self, photo: str | Path | Upload | Image) -> View:
        """All images side by side: pixels (3, H, W), with H the largest side and W their sum.

        Raises:
            InputError: the photo cannot be read.
        """
        views = [part(photo) for part in self.parts]
        padded = [
            F.pad(view.pixels, (0, 0, 0, self.size - part.size))
            for part, view in zip(self.parts, views, strict=True)
        ]
        return views[0]._replace(pixels=torch.cat(padded, dim=2))


class JointEncoder(Encoder):
    """The annotation vectors of several encoders, one encoder's regions after another's.

    Args:
        encoders: the encoders.
        places: for each encoder, left edge and side of its image in the joint one, in pixels.

    Attributes:
        annotation_dim: D, the largest of the encoders'; narrower vectors are padded with zeros.
        grids: for each encoder, rows and columns of its regions.
        regions: for each encoder, the slice of its regions among the L.
    """

    def __init__(self, encoders: Sequence[Encoder], places: Sequence[tuple[int, int]]) -> None:
        super().__init__()
        self.encoders = cast("Sequence[Encoder]", nn.ModuleList(encoders))
        self.places = places
        self.annotation_dim = max(encoder.annotation_dim for encoder in encoders)
        self.grids = [
            encoder.grid(side, side) for encoder, (_, side) in zip(encoders, places, strict=True)
        ]
        ends = [0, *accumulate(map(prod, self.grids))]
        self.regions = [slice(*pair) for pair in pairwise(ends)]

    def forward(self, images: UInt8[Tensor, "B 3 H W"]) -> Float[Tensor, "B L D"]:
        """Annotation vectors of images from `SideBySide`, or of one image for all encoders."""
        vectors = [
            encoder(images[:, :, :side, left : left + side])
            for encoder, (left, side) in zip(self.encoders, self.places, strict=True)
        ]
        padded = [F.pad(part, (0, self.annotation_dim - part.shape[2])) for part in vectors]
        return torch.cat(padded, dim=1)

    def grid(self, height: int, width: int) -> tuple[int, int]:
        """The finest of the encoders' grids, which an ensemble's attention weights use."""
        return finest(self.grids)

    def folded(self) -> "JointEncoder":
        """The folded encoders as one."""
        return JointEncoder([encoder.folded() for encoder in self.encoders], self.places).eval()


def finest(grids: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """The grid (rows, columns) with the most cells."""
    return max(grids, key=prod)
