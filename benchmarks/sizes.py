"""The sizes that are measured, with made-up annotation vectors and captions of these sizes.

Shapes: B photos, N captions per photo, L regions, D annotation width, S tokens from BOS to EOS.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from captioning.data.vocabulary import BOS, EOS, PAD, SPECIAL
from captioning.models import LSTMDecoder

MEAN_WORDS, DEVIATION, SHORTEST, LONGEST = 11.5, 2.5, 7, 25
"""Words per caption, about as on COCO."""


@dataclass(frozen=True)
class Size:
    """How large everything is.

    Attributes:
        backbone: the CNN, by its name in `captioning.models.BACKBONES`.
        pixels: side of the image that the CNN sees.
        grid: side of the grid of regions; L is its square.
        annotation_dim: D.
        projection_dim: W, width that annotation vectors are projected to; none where they are
            taken as they are.
        hidden_dim: width of the LSTM, of the word embeddings and of the attention.
        vocab_size: V, special tokens included.
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
    def regions(self) -> int:
        """L."""
        return self.grid**2

    @property
    def width(self) -> int:
        """W, of the annotation vectors that are attended."""
        return self.projection_dim or self.annotation_dim

    def __str__(self) -> str:
        projected = f" to {self.projection_dim}" if self.projection_dim else ""
        return f"L = {self.regions}, D = {self.annotation_dim}{projected}"


def with_projection(size: Size, width: int) -> Size:
    """The same size with annotation vectors projected to a width, as small data sets want them."""
    return replace(size, projection_dim=width)


RAW = (Size("mobilenet_v2", 224, 7, 1280), Size("resnet101", 448, 14, 2048))
FULL = (*RAW, *(with_projection(size, 512) for size in RAW))
"""The paper's raw annotation vectors, and those of the research repositories, projected to 512."""

RAW_QUICK = Size("small", 32, 4, 196, hidden_dim=16, vocab_size=60, photos=3, captions=2)
QUICK = (RAW_QUICK, with_projection(RAW_QUICK, 16))


def annotations(size: Size, seed: int = 0) -> Float[Tensor, "B L D"]:
    """Annotation vectors like a CNN's: not negative, half of them zero, each photo of its own."""
    generator = torch.Generator().manual_seed(seed)
    shape = (size.photos, size.regions, size.annotation_dim)
    regions = torch.randn(shape, generator=generator)
    photo = torch.randn(shape[0], 1, shape[2], generator=generator)
    return (regions + photo).relu()


def tokens(size: Size, seed: int = 0) -> Int[Tensor, "B N S"]:
    """Captions of random words from BOS to EOS, PAD after, of lengths about as on COCO."""
    generator = torch.Generator().manual_seed(seed)
    shape = (size.photos, size.captions)
    spread = torch.randn(shape, generator=generator)
    words = (MEAN_WORDS + DEVIATION * spread).round().long().clamp(SHORTEST, LONGEST)
    longest = int(words.max())
    ids = torch.randint(len(SPECIAL), size.vocab_size, (*shape, longest + 2), generator=generator)
    place = torch.arange(longest + 2)
    end = words[..., None] + 1  # BOS comes before the words
    ids = ids.masked_fill(place == 0, BOS).masked_fill(place == end, EOS)
    return ids.masked_fill(place > end, PAD)


def random_decoder(size: Size, dropout: float = 0.5, seed: int = 0) -> LSTMDecoder:
    """The paper's decoder before its training; the same seed gives the same parameters."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return LSTMDecoder(
            annotation_dim=size.annotation_dim,
            vocab_size=size.vocab_size,
            embedding_dim=size.hidden_dim,
            hidden_dim=size.hidden_dim,
            attention_dim=size.hidden_dim,
            projection_dim=size.projection_dim,
            dropout=dropout,
            annotation_dropout=dropout if size.projection_dim else 0.0,
        )
