"""The order of the training images."""

from collections.abc import Iterator, Sequence
from itertools import cycle, islice

import torch
from torch.utils.data.distributed import DistributedSampler

POOL = 32
"""Batches per pool; a pool's images are sorted by caption length and cut into batches."""


class SeededSampler(DistributedSampler):
    """Indices in a new order every epoch, each with a seed for its example's random choices.

    Images with captions of similar length share a batch, which keeps padding small; which of them
    do, and the order of the batches, is random.

    Order and seeds depend on seed and epoch alone, so a resumed training repeats its interrupted
    epoch. P processes with batches of n share the batches that one process with batches of P n
    would have.

    Args:
        lengths: words of the longest caption of each image.
        batch_size: images per step of one process.
        processes: how many processes share the images.
        process: the rank of this one.
        seed: of order and seeds.
        first_epoch: number of the first epoch, when a training resumes. Lightning calls
            `set_epoch` for the first epoch only after workers have begun to read its images.
        first_index: how many indices of the first epoch have been used before.
    """

    def __init__(
        self,
        lengths: Sequence[int],
        batch_size: int,
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
        """Start an epoch."""
        super().set_epoch(max(epoch, self.first_epoch))

    def __iter__(self) -> Iterator[tuple[int, int]]:
        generator = torch.Generator().manual_seed(self.seed + self.epoch)
        seeds = torch.randint(2**62, (len(self.lengths),), generator=generator)
        # Images from the beginning pad the end, so that all processes have equally many.
        order = islice(cycle(self._order(generator)), self.total_size)
        first = self.first_index if self.epoch == self.first_epoch else 0
        mine = islice(order, self.rank + first * self.num_replicas, None, self.num_replicas)
        return ((index, int(seeds[index])) for index in mine)

    def _order(self, generator: torch.Generator) -> list[int]:
        order = torch.randperm(len(self.lengths), generator=generator)
        # The last batch may be smaller; it stays last, or the batches after it would be shifted.
        whole, rest = order.tensor_split([len(order) // self.batch_size * self.batch_size])
        pools = whole.split(POOL * self.batch_size)
        alike = [pool[self.lengths[pool].argsort(stable=True)] for pool in pools]
        batches = torch.cat(alike).view(-1, self.batch_size)
        batches = batches[torch.randperm(len(batches), generator=generator)]
        return [*batches.flatten().tolist(), *rest.tolist()]
