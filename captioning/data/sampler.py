"""The order in which a training sees its images."""

from collections.abc import Iterator
from itertools import cycle, islice

import torch
from jaxtyping import Int
from torch import Tensor
from torch.utils.data.distributed import DistributedSampler

POOL = 64
"""Batches among whose images those with captions of similar lengths are looked for."""


class SeededSampler(DistributedSampler):
    """Indices in a new order every epoch, each with a seed for what is random about its example.

    Images with captions of similar lengths share a batch, so that little of it is padding; which
    ones do, and the order of the batches, is random.

    Order and seeds depend on seed and epoch alone, so that an epoch repeats itself after an
    interrupted training resumes. Several processes share the batches that one would have with as
    many times their batch size.

    Args:
        lengths: words of each image's captions, the longest first; zero for a caption that it has
            not got.
        batch_size: images per step of one process.
        processes: how many share the images.
        process: which one this is.
        seed: of order and seeds.
        first_epoch: number of the first epoch, where a training resumes. Lightning tells epochs by
            `set_epoch`, but the first one only after workers have begun to read its images.
        first_index: how many of its indices the first epoch has had before.
    """

    def __init__(
        self,
        lengths: Int[Tensor, "images captions"],
        batch_size: int,
        processes: int = 1,
        process: int = 0,
        seed: int = 0,
        first_epoch: int = 0,
        first_index: int = 0,
    ) -> None:
        # Of its data set, the sampler of torch wants to know nothing but the size.
        super().__init__(lengths, processes, process, seed=seed)  # type: ignore[arg-type]
        self.lengths = lengths
        self.batch_size = batch_size * processes
        self.first_epoch = self.epoch = first_epoch
        self.first_index = first_index

    def set_epoch(self, epoch: int) -> None:
        """Begin another epoch."""
        super().set_epoch(max(epoch, self.first_epoch))

    def __iter__(self) -> Iterator[tuple[int, int]]:
        generator = torch.Generator().manual_seed(self.seed + self.epoch)
        seeds = torch.randint(2**62, (len(self.lengths),), generator=generator)
        # Images from the beginning fill up the end, so that all processes have equally many.
        order = islice(cycle(self._order(generator)), self.total_size)
        first = self.first_index if self.epoch == self.first_epoch else 0
        mine = islice(order, self.rank + first * self.num_replicas, None, self.num_replicas)
        return ((index, int(seeds[index])) for index in mine)

    def _order(self, generator: torch.Generator) -> list[int]:
        order = torch.randperm(len(self.lengths), generator=generator)
        # The last batch may have fewer images; it stays last, or those after it would be torn.
        whole, rest = order.tensor_split([len(order) // self.batch_size * self.batch_size])
        alike = [self._alike(pool) for pool in whole.split(POOL * self.batch_size)]
        batches = torch.cat(alike).view(-1, self.batch_size)
        batches = batches[torch.randperm(len(batches), generator=generator)]
        return [*batches.flatten().tolist(), *rest.tolist()]

    def _alike(self, images: Int[Tensor, "some"]) -> Int[Tensor, "some"]:
        """Whole batches of images in an order in which batches have little padding.

        Halved again and again, each time by the length of that caption (the longest, the second
        longest ...) that leaves the fewest words to read.
        """
        batches = len(images) // self.batch_size
        if batches < 2:
            return images
        middle = batches // 2 * self.batch_size
        orders = [images[of_caption.argsort(stable=True)] for of_caption in self.lengths[images].T]
        halves = [order.tensor_split([middle]) for order in orders]
        first, second = min(halves, key=lambda parts: sum(map(self._words, parts)))
        return torch.cat([self._alike(first), self._alike(second)])

    def _words(self, images: Int[Tensor, "some"]) -> int:
        """Words, padding counted, that a batch of these images would have.

        Of each word, all images read as many captions as any of them still has; so each caption is
        as long as the longest one of its rank.
        """
        return len(images) * int(self.lengths[images].amax(dim=0).sum())
