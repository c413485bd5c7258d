"""Checks that a file of tensors is undamaged, that they fit a model, and that it fits memory."""

import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from captioning.errors import InputError, shown
from captioning.untrusted import opened

MOST_PARAMETERS = 500_000_000
"""The most parameters of a model: two gigabytes in single precision."""


@contextmanager
def bounded_parameters() -> Iterator[None]:
    """Stop building a model within the block as soon as it has too many parameters.

    Sizes that are all in range may multiply to more than a computer's memory holds.

    Raises:
        InputError: it has more than `MOST_PARAMETERS`.
    """
    count = 0

    def add(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        nonlocal count
        count += 0 if parameter is None else parameter.numel()
        if count > MOST_PARAMETERS:
            raise InputError(
                f"the model has more than {MOST_PARAMETERS:,} parameters; choose a smaller "
                "backbone, or smaller widths"
            )

    hook = register_module_parameter_registration_hook(add)
    try:
        yield
    finally:
        hook.remove()


def check_archive(path: Path) -> None:
    """Compare the checksums that `torch.save` wrote into a file with its content.

    Raises:
        InputError: it is not a regular file of `torch.save`, cannot be read, or is damaged.
    """
    try:
        with opened(path) as file, zipfile.ZipFile(file) as archive:
            for entry in archive.infolist():
                if entry.compress_type != zipfile.ZIP_STORED:  # a small file could fill the memory
                    raise InputError(f"{path}: compressed; give the file as it was written")
            damaged = archive.testzip()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); give another file") from None
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, ValueError):
        damaged = "the archive"
    if damaged:
        raise InputError(f"{path}: damaged, or not written by torch.save; copy it again")


def check_tensors(path: Path, found: Any, wanted: Mapping[str, Tensor]) -> None:
    """Compare tensors from a file with those of the model that they will replace.

    Args:
        path: the file, for messages.
        found: its tensors by name, of any type if the file is not ours.
        wanted: the model's.

    Raises:
        InputError: names, shapes or dtypes differ, or numbers are not finite.
    """
    if not isinstance(found, dict):
        raise InputError(f"{path}: contains no tensors by name; give one that a training wrote")
    if missing := sorted(wanted.keys() - found.keys()):
        raise InputError(f"{path}: lacks {missing[0]}; this file belongs to another model")
    for name, value in found.items():
        if name not in wanted:
            raise InputError(
                f"{path}: unexpected tensor {shown(name)}; this file belongs to another model"
            )
        if problem := _misfit(value, wanted[name]):
            raise InputError(f"{path}: {name} {problem}; this file belongs to another model")
    check_finite(path, found)


def check_finite(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Raise InputError if a tensor holds infinities or NaN."""
    for name, value in tensors.items():
        # A sum is finite only if all its terms are; it takes a tenth of the time, but may overflow.
        if not (value.sum().isfinite() or value.isfinite().all()):
            raise InputError(
                f"{path}: {name} holds numbers that are not finite; give an earlier checkpoint, or "
                "train again with a lower learning rate"
            )


def _misfit(found: Any, wanted: Tensor) -> str | None:
    """The reason why a value does not fit a tensor; None if it fits."""
    if not isinstance(found, Tensor) or found.layout != torch.strided or found.is_quantized:
        return "is not a plain tensor"
    if found.device.type != "cpu":
        return f"has no values, only the device {found.device}"
    if found.shape != wanted.shape:
        return f"has the shape {list(found.shape)}, not {list(wanted.shape)}"
    kinds = [tensor.is_floating_point() or tensor.dtype for tensor in (found, wanted)]
    if kinds[0] != kinds[1]:
        return f"is of {found.dtype}, not {wanted.dtype}"
    if found.numel() * found.element_size() > found.untyped_storage().nbytes():
        return "repeats its numbers"
    return None
