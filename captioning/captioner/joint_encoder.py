"""Several encoders as one, for ensembles whose members do not see a photo alike.

Shapes: B images, H x W pixels, S side of an encoder's image, L regions, D annotation width.
"""

from collections.abc import Sequence
from pathlib import Path

import torch
from jaxtyping import Float, UInt8
from PIL.Image import Image
from torch import Tensor, nn
from torch.nn import functional as F

from captioning.data.images import Upload
from captioning.data.preprocessing import Preprocessing, View
from captioning.models.encoder import CNNEncoder


class SideBySide(Preprocessing):
    """What several preprocessings make of a photo as one image, from left to right.

    All of them see the same square of the photo, each at a size of its own; under the smaller ones
    are zeros.

    Args:
        parts: the preprocessings.
    """

    def __init__(self, parts: Sequence[Preprocessing]) -> None:
        super().__init__(max(part.size for part in parts))
        self.parts = parts

    def __call__(self, photo: str | Path | Upload | Image) -> View:
        """All images beside each other: pixels (3, H, W), H the largest side and W their sum.

        Raises:
            InputError: the photo cannot be read.
        """
        views = [part(photo) for part in self.parts]
        padded = [
            F.pad(view.pixels, (0, 0, 0, self.size - part.size))
            for part, view in zip(self.parts, views, strict=True)
        ]
        return views[0]._replace(pixels=torch.cat(padded, dim=2))


class JointEncoder(nn.Module):
    """The annotation vectors of several encoders, one encoder's regions after another's.

    Args:
        encoders: the encoders.
        places: for each the left edge and the side in pixels of its image in the joint one.

    Attributes:
        annotation_dim: D, the largest of the encoders'; the vectors of the others end in zeros.
        regions: for each encoder which of the L regions are its own.
    """

    def __init__(self, encoders: Sequence[CNNEncoder], places: Sequence[tuple[int, int]]) -> None:
        super().__init__()
        self.encoders = nn.ModuleList(encoders)
        self.places = places
        self.annotation_dim = max(encoder.annotation_dim for encoder in encoders)
        self.regions = self._regions()

    def forward(self, images: UInt8[Tensor, "B 3 H W"]) -> Float[Tensor, "B L D"]:
        """Annotation vectors of images as `SideBySide` gives them, or of one image for all."""
        vectors = [
            encoder(images[:, :, :side, left : left + side])
            for encoder, (left, side) in zip(self.encoders, self.places, strict=True)
        ]
        padded = [F.pad(part, (0, self.annotation_dim - part.shape[2])) for part in vectors]
        return torch.cat(padded, dim=1)

    def completed(self, features: Float[Tensor, "B L D"]) -> Float[Tensor, "B L D"]:
        """The same: of several encoders only annotation vectors are kept."""
        return features

    @torch.no_grad()
    def _regions(self) -> list[slice]:
        """Known only from what the encoders make of an image; a black one will do."""
        found, first = [], 0
        device = next(self.parameters()).device
        for encoder, (_, side) in zip(self.encoders, self.places, strict=True):
            black = torch.zeros(1, 3, side, side, dtype=torch.uint8, device=device)
            count = encoder(black).shape[1]
            found.append(slice(first, first + count))
            first += count
        return found
