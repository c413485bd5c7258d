"""Where a model computes."""

import torch

from captioning.errors import UsageError


def usable_device(name: str | None = None) -> str:
    """The device of this name, or the best one that this machine has.

    Raises:
        UsageError: this machine has no such device.
    """
    if name is None:
        if torch.cuda.is_available():
            return "cuda"
        return "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        torch.zeros(1, device=name).item()  # meta, say, is a device that holds no values
    except (RuntimeError, AssertionError, NotImplementedError):
        raise UsageError(
            f"this machine has no device {name!r}; give cpu, or leave it out"
        ) from None
    return name
