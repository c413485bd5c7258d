import os

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from captioning.data.worker_priority import lower_priority


class Niceness(Dataset[Tensor]):
    """How far the process that reads an example lets others go first."""

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> Tensor:
        return torch.tensor(os.nice(0))


def test_a_worker_lets_the_process_that_computes_go_first() -> None:
    [niceness] = DataLoader(Niceness(), num_workers=1, worker_init_fn=lower_priority)
    assert niceness.item() == min(os.nice(0) + 10, 19)
