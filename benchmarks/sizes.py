"""The sizes that are measured, with random annotation vectors and captions of these sizes.

Shapes: B photos, N captions per photo, L regions, D annotation width, S tokens from BOS to EOS.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from captioning.data.vocabulary import BOS, EOS, PAD, SPECIAL

MEAN_WORDS, DEVIATION, SHORTEST, LONGEST = 11.5, 2.5, 7, 25
"""Words per caption while training, about as on COCO."""

WORDS = 12
"""Words of every caption that a search writes."""


@dataclass(frozen=True)
class Size:
    """Widths and counts.

    Attributes:
        backbone: the CNN, by its name in `captioning.models.BACKBONES`.
        pixels: side of the image.
        grid: side of the grid of regions; L is its square.
        annotation_dim: D.
        projection_dim: width that annotation vectors are projected to; None for raw ones.
        hidden_dim: width of the LSTM, of the word embeddings and of the attention.
        vocab_size: special tokens included.
        photos: B.
        captions: N.
    """

    backbone: str
    pixels: int
    grid: int
    annotation_dim: int
    projection_dim: int | None = None
    hidden_dim: int = 512
    vocab_size: int = 10_000
    photos: int = 32
    captions: int = 5

    @property
    def width(self) -> int:
        """Width of the annotation vectors that are attended."""
        return self.projection_dim or self.annotation_dim


_SMALL = Size("mobilenet_v2", 224, 7, 1280)
_LARGE = Size("resnet101", 448, 14, 2048)
_PHOTOS = Size("timm/tf_efficientnet_lite2", 320, 10, 1280, 512, vocab_size=3310)
_TINY = Size("small", 32, 4, 196, hidden_dim=16, vocab_size=60, photos=3, captions=2)

SIZES = {
    "small": _SMALL,
    "large": _LARGE,
    "small-512": replace(_SMALL, projection_dim=512),
    "large-512": replace(_LARGE, projection_dim=512),
    "photos": _PHOTOS,
    "tiny": _TINY,
    "tiny-16": replace(_TINY, projection_dim=16),
}
"""As with Flickr8k and with COCO, raw as in the paper or projected; the photo model's; two for
tests."""


def annotations(size: Size) -> Float[Tensor, "B L D"]:
    """Annotation vectors like a CNN's: nonnegative, half of them zero, alike within a photo."""
    generator = torch.Generator().manual_seed(0)
    shape = (size.photos, size.grid**2, size.annotation_dim)
    regions = torch.randn(shape, generator=generator)
    photo = torch.randn(shape[0], 1, shape[2], generator=generator)
    return (regions + photo).relu()


def tokens(size: Size) -> Int[Tensor, "B N S"]:
    """Captions of random words from BOS to EOS, with PAD after it."""
    generator = torch.Generator().manual_seed(0)
    shape = (size.photos, size.captions)
    spread = torch.randn(shape, generator=generator)
    words = (MEAN_WORDS + DEVIATION * spread).round().long().clamp(SHORTEST, LONGEST)
    longest = int(words.max())
    ids = torch.randint(len(SPECIAL), size.vocab_size, (*shape, longest + 2), generator=generator)
    place = torch.arange(longest + 2)
    end = words[..., None] + 1  # BOS comes before the words
    ids = ids.masked_fill(place == 0, BOS).masked_fill(place == end, EOS)
    return ids.masked_fill(place > end, PAD)
