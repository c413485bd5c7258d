"""Records as examples, examples as batches."""

import re
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset

from captioning.data.feature_cache import FeatureCache
from captioning.data.preprocessing import Preprocessing
from captioning.data.records import Record
from captioning.data.vocabulary import PAD, Vocabulary

SIDED = re.compile(r"\b(left|right)", re.IGNORECASE)
"""Prefixes of words that mirroring the image makes wrong: left, right-hand, ..."""


class Example(NamedTuple):
    """One image with its captions.

    Attributes:
        image: uint8 pixels (3, S, S), or half-precision features (L, D) from a cache.
        captions: word ids between BOS and EOS, one tensor per caption.
        record: the record of the image.
    """

    image: Tensor
    captions: list[Int[Tensor, "T"]]
    record: Record


class Batch(NamedTuple):
    """B images with up to N captions of up to T words each.

    Attributes:
        images: uint8 pixels (B, 3, S, S), or features (B, L, D) from a cache.
        tokens: word ids from BOS to EOS, PAD after; an image with fewer than N captions has rows
            of PAD.
        records: the records of the images.
    """

    images: Tensor
    tokens: Int[Tensor, "B N T"]
    records: list[Record]

    def to(self, device: torch.device) -> "Batch":
        """The batch with its tensors on `device`."""
        images = self.images.to(device, non_blocking=True)
        return Batch(images, self.tokens.to(device, non_blocking=True), self.records)


def sided(record: Record) -> bool:
    """Whether a caption says left or right, so that it would not be true of the mirrored image."""
    return any(SIDED.search(caption) for caption in record.captions)


def collate(examples: Sequence[Example]) -> Batch:
    """Examples as one batch, with every image stored once."""
    n = max(len(example.captions) for example in examples)
    captions = [
        example.captions[i] if i < len(example.captions) else torch.empty(0, dtype=torch.long)
        for example in examples
        for i in range(n)
    ]
    tokens = pad_sequence(captions, batch_first=True, padding_value=PAD)
    return Batch(
        images=torch.stack([example.image for example in examples]),
        tokens=tokens.view(len(examples), n, -1),
        records=[example.record for example in examples],
    )


class CaptionDataset(Dataset[Example]):
    """Images, each read once, with their captions as word ids.

    An index may come as (index, seed); the seed then decides the crop, the mirroring and which
    captions are taken, so that an example is the same whichever process makes it.

    Args:
        records: the images.
        vocabulary: gives the word ids.
        preprocessing: makes the image.
        captions_per_image: the most captions of one image; a random choice if there are more.
        max_tokens: the most tokens of a caption, EOS counted; the rest is cut off.
        augment: random crops, and mirroring where no caption says left or right.
        features: what to use instead of pixels.
        mirrored: features of the mirrored images, to use half of the time where no
            caption says left or right.
    """

    def __init__(
        self,
        records: Sequence[Record],
        vocabulary: Vocabulary,
        preprocessing: Preprocessing,
        captions_per_image: int = 5,
        max_tokens: int = 50,
        augment: bool = False,
        features: FeatureCache | None = None,
        mirrored: FeatureCache | None = None,
    ) -> None:
        self.records = records
        self.vocabulary = vocabulary
        self.preprocessing = preprocessing
        self.captions_per_image = captions_per_image
        self.max_tokens = max_tokens
        self.augment = augment
        self.features = features
        self.mirrored = mirrored

    def __len__(self) -> int:
        return len(self.records)

    @property
    def lengths(self) -> list[int]:
        """Words of each record's longest caption, which decides how much its batch is padded.

        Words are counted by spaces, which is close enough for sorting and a hundred times faster
        than tokenizing.
        """
        return [
            min(max(len(caption.split()) for caption in record.captions), self.max_tokens)
            for record in self.records
        ]

    def __getitem__(self, index: int | tuple[int, int]) -> Example:
        """The example of a record.

        Raises:
            InputError: the photo cannot be read.
        """
        index, seed = index if isinstance(index, tuple) else (index, 0)
        record = self.records[index]
        generator = torch.Generator().manual_seed(seed)
        return Example(self._image(record, generator), self._captions(record, generator), record)

    def _image(self, record: Record, generator: torch.Generator) -> Tensor:
        if self.features is not None:
            features = self.features
            if self.mirrored is not None and not sided(record):
                features = self.mirrored if torch.rand((), generator=generator) < 0.5 else features
            return features[record.image]
        if not self.augment:
            return self.preprocessing(record.image).pixels
        flip = not sided(record)
        return self.preprocessing.augmented(record.image, generator, flip).pixels

    def _captions(self, record: Record, generator: torch.Generator) -> list[Int[Tensor, "T"]]:
        chosen = torch.arange(len(record.captions))
        if len(chosen) > self.captions_per_image:
            order = torch.randperm(len(chosen), generator=generator)
            chosen = order[: self.captions_per_image].sort().values
        ids = (self.vocabulary.encode(record.captions[i]) for i in chosen.tolist())
        return [torch.tensor(row[: self.max_tokens + 1]) for row in ids]
