"""Whether a training can go on from a checkpoint, before Lightning restores half of it."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from captioning.captioner.checkpoint import check_checksum, read
from captioning.errors import InputError
from captioning.integrity import check_archive, check_finite, check_tensors
from captioning.training.module import PROGRESS, CaptioningModule, progress_checksum


def check_resumable(path: Path, module: CaptioningModule) -> None:
    """Look whether a checkpoint is whole and of this training's model.

    All of the file is read, so that damage of the optimizer's state is found, too.

    Args:
        path: the checkpoint.
        module: the training's, as its configuration says.

    Raises:
        InputError: it is not, with what to do instead.
    """
    try:
        saved = read(path)
        check_archive(path, whole=True)
        _check_records(path)
        for name, kind in PROGRESS.items():
            if not isinstance(saved.get(name), kind):
                raise InputError(f"its {name} is missing or of another kind")
        check_tensors(path, saved["state_dict"], module.state_dict())
        check_checksum(path, saved)
        expected = saved.get("progress_checksum")
        if expected is not None and progress_checksum(saved) != expected:
            raise InputError("its progress differs from its checksum")
        _check_optimizer(path, saved["optimizer_states"], module)
        if not isinstance(saved["loops"].get("fit_loop"), dict) or len(saved["lr_schedulers"]) != 1:
            raise InputError("its progress is missing")
    except InputError as error:
        reason = str(error).removeprefix(f"{path}: ").partition("; ")[0]
        raise InputError(
            f"{path}: cannot be resumed from ({reason}); put an earlier copy there, give the "
            "configuration that it was trained by, or start anew with --overwrite"
        ) from None


def _check_records(path: Path) -> None:
    """See that torch reads the file as Lightning will; mapped, it overlooks records too long.

    Raises:
        InputError: it does not.
    """
    try:
        torch.load(path, map_location="cpu", weights_only=True)
    except Exception:  # of a dozen kinds
        raise InputError("its tensors are damaged") from None


def _check_optimizer(path: Path, states: list[Any], module: CaptioningModule) -> None:
    """Compare the optimizer's state with the parameters that are trained.

    Raises:
        InputError: it is of others, or damaged.
    """
    groups = [parameters for parameters, _ in module.trained_parameters()]
    try:
        [state] = states
        found = [list(group["params"]) for group in state["param_groups"]]
        moments = {
            number: {name: value for name, value in part.items() if isinstance(value, Tensor)}
            for number, part in state["state"].items()
        }
    except (AttributeError, KeyError, TypeError, ValueError):
        raise InputError("its optimizer's state is of another kind") from None
    if [len(group) for group in found] != [len(group) for group in groups]:
        raise InputError("other parts of the model were trained")
    parameters = dict(enumerate(parameter for group in groups for parameter in group))
    for number, tensors in moments.items():
        shapes = {tensor.shape for tensor in tensors.values() if tensor.dim()}
        if number not in parameters or shapes - {parameters[number].shape}:
            raise InputError("its optimizer's state is of other parameters")
        check_finite(path, {f"the optimizer's {name}": tensors[name] for name in tensors})
