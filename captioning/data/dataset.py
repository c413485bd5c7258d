"""Turns records into examples and examples into batches, and orders the training images."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset
from torch.utils.data.distributed import DistributedSampler

from captioning.data.feature_cache import FeatureCache
from captioning.data.preprocessing import Preprocessing
from captioning.data.records import Record
from captioning.data.vocabulary import PAD, Vocabulary

SIDE_WORDS = re.compile(r"\b(left|right)", re.IGNORECASE)
POOL = 32  # batches in a pool, whose images are sorted by caption length


class Example(NamedTuple):
    """One image with its captions."""

    image: Tensor  # uint8 pixels (3, S, S), or half-precision features (L, D)
    captions: list[Int[Tensor, " T"]]  # word ids between BOS and EOS
    record: Record


class Batch(NamedTuple):
    """B images with up to N captions of up to T words; missing captions are rows of PAD."""

    images: Tensor  # uint8 pixels (B, 3, S, S), or half-precision features (B, L, D)
    tokens: Int[Tensor, "B N T"]  # word ids from BOS to EOS, then PAD
    records: list[Record]

    def to(self, device: torch.device) -> "Batch":
        images, tokens = (part.to(device, non_blocking=True) for part in (self.images, self.tokens))
        return self._replace(images=images, tokens=tokens)


def mentions_side(record: Record) -> bool:
    """Whether an English caption mentions left or right, which mirroring would make wrong."""
    return any(SIDE_WORDS.search(caption) for caption in record.captions)


def collate(examples: Sequence[Example]) -> Batch:
    """Join examples to a batch."""
    images, captions, records = zip(*examples, strict=True)
    return Batch(torch.stack(images), pad_captions(captions), [*records])


def pad_captions(captions: Sequence[Sequence[Int[Tensor, " _"]]]) -> Int[Tensor, "B N T"]:
    """Pad each image's captions to the same number, and all captions to the same length."""
    count = max(map(len, captions))
    empty_caption = torch.empty(0, dtype=torch.long)
    rows: list[Tensor] = []
    for image_captions in captions:
        rows += [*image_captions, *[empty_caption] * (count - len(image_captions))]
    return pad_sequence(rows, batch_first=True, padding_value=PAD).unflatten(0, (-1, count))


@dataclass(eq=False)
class CaptionDataset(Dataset[Example]):
    """Images with their captions as word ids.

    An index may be (index, seed). The seed decides the crop, the mirroring and the choice of
    captions, so an example does not depend on the process that makes it.

    The arguments are those of `CaptionData`, and `may_mirror`: whether `augment` mirrors images.
    """

    records: Sequence[Record]
    vocabulary: Vocabulary
    preprocessing: Preprocessing
    captions_per_image: int = 5
    max_tokens: int = 1000
    augment: bool = False
    may_mirror: bool = True
    features: FeatureCache | None = None
    mirrored: FeatureCache | None = None
    crop: int | None = None

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, index: int | tuple[int, int]) -> Example:
        index, seed = index if isinstance(index, tuple) else (index, 0)
        record = self.records[index]
        generator = torch.Generator().manual_seed(seed)
        if self.features is not None:
            image = self._feature(record, self.features, generator)
        else:
            if self.augment:
                flip = self.may_mirror and not mentions_side(record)
                view = self.preprocessing.augmented(record.image, generator, flip)
            else:
                view = self.preprocessing(record.image)
            image = view.pixels
        captions = caption_ids(
            record,
            self.vocabulary,
            generator,
            max_captions=self.captions_per_image,
            max_tokens=self.max_tokens,
        )
        return Example(image, captions, record)

    def _feature(
        self, record: Record, features: FeatureCache, generator: torch.Generator
    ) -> Tensor:
        if self.mirrored is not None and not mentions_side(record):
            is_mirrored = torch.rand((), generator=generator) < 0.5
            features = self.mirrored if is_mirrored else features
        image = features[record.image]
        if side := self.crop:
            rows = math.isqrt(len(image))
            top, left = torch.randint(rows - side + 1, (2,), generator=generator).tolist()
            grid = image.unflatten(0, (rows, rows))
            image = grid[top : top + side, left : left + side].flatten(0, 1)
        return image


def caption_ids(
    record: Record,
    vocabulary: Vocabulary,
    generator: torch.Generator,
    *,
    max_captions: int = 5,
    max_tokens: int = 1000,
) -> list[Int[Tensor, " T"]]:
    """Encode a record's captions, or a random choice of `max_captions` of them."""
    order = torch.arange(len(record.captions))
    if len(order) > max_captions:
        order = torch.randperm(len(order), generator=generator)[:max_captions].sort().values
    captions = [record.captions[index] for index in order.tolist()]
    return [torch.tensor(vocabulary.encode(caption)[: max_tokens + 1]) for caption in captions]


class SeededSampler(DistributedSampler):
    """Samples indices in a new order every epoch, each with a seed for its example.

    Images with captions of similar length share a batch; otherwise the order is random. P processes
    with batches of n images share the batches that one process with batches of P n images would
    have. Order and seeds depend only on seed and epoch, so a resumed training repeats its epoch.

    Args:
        lengths: words of the longest caption of each image.
        batch_size: images per step of one process.
        processes: number of processes that share the images.
        process: rank of this process.
        seed: of order and seeds.
        first_epoch: the epoch in which a training resumes. Lightning calls `set_epoch` for it only
            after workers have begun to read its images.
        first_index: number of indices of the first epoch that are skipped.
    """

    def __init__(
        self,
        lengths: Sequence[int],
        batch_size: int,
        *,
        processes: int = 1,
        process: int = 0,
        seed: int = 0,
        first_epoch: int = 0,
        first_index: int = 0,
    ) -> None:
        # torch's sampler uses only the size of its data set.
        super().__init__(lengths, processes, process, seed=seed)  # type: ignore[arg-type]
        self.lengths = torch.tensor(lengths)
        self.batch_size = batch_size * processes
        self.first_epoch = self.epoch = first_epoch
        self.first_index = first_index

    def set_epoch(self, epoch: int) -> None:
        super().set_epoch(max(epoch, self.first_epoch))

    def __iter__(self) -> Iterator[tuple[int, int]]:
        generator = torch.Generator().manual_seed(self.seed + self.epoch)
        seeds = torch.randint(2**62, (len(self.lengths),), generator=generator)
        order = torch.randperm(len(self.lengths), generator=generator)
        # The last batch may be smaller; it stays last, or the batches after it would be shifted.
        full_batches, last_batch = order.tensor_split(
            [len(order) // self.batch_size * self.batch_size]
        )
        pools = full_batches.split(POOL * self.batch_size)
        sorted_pools = [pool[self.lengths[pool].argsort(stable=True)] for pool in pools]
        batches = torch.cat(sorted_pools).view(-1, self.batch_size)
        batches = batches[torch.randperm(len(batches), generator=generator)]
        # Images from the beginning pad the end, so that all processes have equally many.
        indices = cycle([*batches.flatten().tolist(), *last_batch.tolist()])
        start = self.first_index if self.epoch == self.first_epoch else 0
        process_indices = islice(
            indices, self.rank + start * self.num_replicas, self.total_size, self.num_replicas
        )
        return ((index, int(seeds[index])) for index in process_indices)
