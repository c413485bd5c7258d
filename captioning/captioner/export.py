"""Checkpoints for giving away: the model alone, without what only its training needs."""

from pathlib import Path

import torch
from torch import Tensor

from captioning.captioner.checkpoint import captioners_tensors, load, read
from captioning.files import written_whole
from captioning.integrity import checksum


def export(checkpoint: str | Path, path: str | Path, half: bool = False) -> None:
    """Write the captioner of a checkpoint to a file that `load` reads.

    Without the optimizer's state the file has a third of the size, in half precision a sixth. No
    training can resume from it.

    Args:
        checkpoint: that `captioning train` wrote.
        path: where to write the model.
        half: keep 16 bits of each number. The model computes in single precision all the same.

    Raises:
        InputError: the checkpoint is missing or damaged, or the file cannot be written.
    """
    load(checkpoint)  # refuses what no captioner can be built from
    saved = read(Path(checkpoint))
    tensors = {
        name: _halved(value) if half else value.clone()
        for name, value in captioners_tensors(saved).items()
    }
    model = {
        "captioner": saved["captioner"],
        "state_dict": {f"captioner.{name}": value for name, value in tensors.items()},
        "checksum": checksum(saved["captioner"], tensors),
    }
    with written_whole(path) as temporary:
        torch.save(model, temporary)


def _halved(value: Tensor) -> Tensor:
    """The tensor in half precision; as it is where it has no fractions or exceeds the range."""
    halved = value.half() if value.is_floating_point() else value
    return halved if halved.isfinite().all() else value.clone()
