"""Whether a file of tensors is whole, and its tensors are those that a model needs."""

import json
import re
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from captioning.errors import InputError
from captioning.numbers import shown
from captioning.untrusted import opened


class DamagedError(InputError):
    """A file is not as it was written."""


STORAGE = re.compile(r".*/data/[0-9]+")
"""The parts of an archive that hold tensors, as torch names them."""


def check_archive(path: Path, whole: bool = False) -> None:
    """Look for damage of a file that `torch.save` wrote.

    Args:
        path: the file.
        whole: read all of it, tensors too; otherwise all but these, which are by far the most.

    Raises:
        InputError: it is no regular file, or cannot be read; a `DamagedError` if it is not as it
            was written.
    """
    try:
        with opened(path) as file, zipfile.ZipFile(file) as archive:
            for entry in archive.infolist():
                if entry.compress_type != zipfile.ZIP_STORED:
                    raise InputError(
                        f"{path}: compressed, which its tensors cannot be; give the file as it "
                        "was written"
                    )
                if whole or not STORAGE.fullmatch(entry.filename):
                    archive.read(entry)  # compares its checksum
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); give another file") from None
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, ValueError):
        raise DamagedError(f"{path}: damaged, or not written by torch.save; copy it anew") from None


def check_tensors(path: Path, found: Any, wanted: Mapping[str, Tensor]) -> None:
    """Compare tensors from a file with those that are to take their values.

    Args:
        path: the file, for messages.
        found: its tensors by name, of any type if the file is not ours.
        wanted: the model's.

    Raises:
        InputError: names, shapes or kinds of numbers differ, or numbers are not finite.
    """
    check_shapes(path, found, wanted)
    check_finite(path, found)


def check_finite(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Refuse infinite numbers, and those that are none.

    Raises:
        InputError: there are some.
    """
    for name, value in tensors.items():
        if not _is_finite(value):
            raise InputError(
                f"{path}: {name} holds numbers that are not finite; give an earlier one, or train "
                "anew with a lower learning rate"
            )


def check_shapes(path: Path, found: Any, wanted: Mapping[str, Tensor]) -> None:
    """The same without a look at the numbers; the model's tensors may be on the device "meta".

    Raises:
        InputError: names, shapes or kinds of numbers differ.
    """
    if not isinstance(found, dict):
        raise InputError(f"{path}: holds no tensors by name; give one that a training wrote")
    if missing := sorted(wanted.keys() - found.keys()):
        raise InputError(f"{path}: has no {missing[0]}; give one of the same model")
    for name, value in found.items():
        if name not in wanted:
            raise InputError(f"{path}: has {shown(name)}, which the model has not; give one of it")
        if problem := _misfit(value, wanted[name]):
            raise InputError(f"{path}: {name} {problem}; give one of the same model")


def _misfit(found: Any, wanted: Tensor) -> str | None:
    """Why a tensor cannot take the other one's values."""
    if not isinstance(found, Tensor) or found.layout != torch.strided or found.is_quantized:
        return "is no plain tensor"
    if found.device.type != "cpu":
        return f"holds no numbers, but a place on {found.device}"
    if found.shape != wanted.shape:
        return f"has the shape {list(found.shape)}, and the model {list(wanted.shape)}"
    kinds = [tensor.is_floating_point() or tensor.dtype for tensor in (found, wanted)]
    if kinds[0] != kinds[1]:
        return f"holds {found.dtype}, and the model {wanted.dtype}"
    if found.numel() * found.element_size() > found.untyped_storage().nbytes():
        return "repeats its numbers"
    return None


def checksum(config: Any, tensors: Mapping[str, Tensor]) -> int:
    """A number that differs where a config or a tensor does.

    CRC-32 finds what copying and disks do to a file, at 1.1 GB/s where BLAKE2 and SHA-256 reached
    0.3 and 0.5; against somebody who may change the file no checksum within it helps.

    Args:
        config: plain values.
        tensors: by name.
    """
    value = zlib.crc32(json.dumps(config, default=repr).encode())
    for name, tensor in sorted(tensors.items()):
        said = f"{name} {tensor.dtype} {list(tensor.shape)} {tensor.stride()}"
        # Among the names are paths, whose bytes need be no UTF-8.
        named = zlib.crc32(said.encode(errors="surrogatepass"), value)
        value = zlib.crc32(_bytes(tensor), named)
    return value


def checksum_of(value: Any) -> int:
    """The checksum of dicts and lists of plain values and tensors."""
    plain: dict[str, str] = {}
    tensors: dict[str, Tensor] = {}
    waiting = [("", value)]
    while waiting:
        key, part = waiting.pop()
        if isinstance(part, Tensor):
            tensors[key] = part
        elif isinstance(part, (dict, list, tuple)):
            named = part.items() if isinstance(part, dict) else enumerate(part)
            waiting += [(f"{key}/{name}", inner) for name, inner in named]
            plain[key] = str(len(part))
        else:
            plain[key] = repr(part)
    return checksum(dict(sorted(plain.items())), tensors)


def _bytes(tensor: Tensor) -> memoryview:
    """The numbers in the order in which they lie in memory, so that none is copied."""
    by_stride = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
    numbers = tensor.detach().cpu().permute(by_stride).reshape(-1)
    return numbers.view(torch.uint8).numpy().data


def _is_finite(tensor: Tensor) -> bool:
    # A sum is finite only if all its terms are, and takes a tenth of the time; it may overflow.
    return bool(tensor.sum().isfinite() or tensor.isfinite().all())
