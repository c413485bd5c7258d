"""Exports a model: a checkpoint without what only its training needs."""

import json
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor

from captioning.captioner.checkpoint import KEY, load, read
from captioning.files import written_whole


def export(checkpoint: str | Path, path: str | Path, half: bool = False) -> None:
    """Write the model of a checkpoint to a safetensors file that `load` reads.

    Without the optimizer's state the file has a third of the size, in half precision a sixth. No
    training can resume from it.

    Args:
        checkpoint: of `captioning train`.
        path: where to write the model.
        half: keep 16 bits of each number. The model computes in single precision all the same.

    Raises:
        InputError: the checkpoint is missing or damaged, or the file cannot be written.
    """
    load(checkpoint)  # refuses a file that is not a captioner's
    config, tensors = read(Path(checkpoint))
    kept = {
        name: (_halved(value) if half else value.clone()).contiguous()
        for name, value in tensors.items()
    }
    with written_whole(path) as temporary:
        save_file(kept, temporary, metadata={KEY: json.dumps(config)})


def _halved(value: Tensor) -> Tensor:
    """The tensor in half precision; unchanged if it holds integers or exceeds the range."""
    halved = value.half() if value.is_floating_point() else value
    return halved if halved.isfinite().all() else value.clone()
