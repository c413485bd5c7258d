"""Checks that a file of tensors is undamaged, and that its tensors fit a model."""

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
    """A file has changed since it was written."""


STORAGE = re.compile(r".*/data/[0-9]+")
"""The parts of an archive that hold tensors, as torch names them."""


def check_archive(path: Path, whole: bool = False) -> None:
    """Check a file of `torch.save` for damage.

    Args:
        path: the file.
        whole: whether to read the tensors, too, which are by far the largest part.

    Raises:
        InputError: it is not a regular file, or cannot be read.
        DamagedError: it has changed since it was written.
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
    """Compare tensors from a file with the model's tensors that will take their values.

    Args:
        path: the file, for messages.
        found: its tensors by name, of any type if the file is not ours.
        wanted: the model's.

    Raises:
        InputError: names, shapes or dtypes differ, or numbers are not finite.
    """
    check_shapes(path, found, wanted)
    check_finite(path, found)


def check_finite(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Refuse infinities and NaN.

    Raises:
        InputError: a tensor holds some.
    """
    for name, value in tensors.items():
        if not _is_finite(value):
            raise InputError(
                f"{path}: {name} holds numbers that are not finite; give an earlier one, or train "
                "anew with a lower learning rate"
            )


def check_shapes(path: Path, found: Any, wanted: Mapping[str, Tensor]) -> None:
    """As `check_tensors`, without reading values; `wanted` may be on the device "meta".

    Raises:
        InputError: names, shapes or dtypes differ.
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
    """The reason why a value does not fit a tensor; None if it fits."""
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
    """A checksum of a config and tensors.

    CRC-32 detects damage by copying and disks, at 1.1 GB/s where BLAKE2 and SHA-256 reached 0.3 and
    0.5. No checksum within a file protects against somebody who may change it.

    Args:
        config: plain values.
        tensors: by name.
    """
    value = zlib.crc32(json.dumps(config, default=repr).encode())
    for name, tensor in sorted(tensors.items()):
        said = f"{name} {tensor.dtype} {list(tensor.shape)} {tensor.stride()}"
        # Names may contain paths, whose bytes need not be UTF-8.
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
    """The numbers in memory order, without a copy."""
    by_stride = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
    numbers = tensor.detach().cpu().permute(by_stride).reshape(-1)
    return numbers.view(torch.uint8).numpy().data


def _is_finite(tensor: Tensor) -> bool:
    # A sum is finite only if all its terms are, and takes a tenth of the time; it may overflow.
    return bool(tensor.sum().isfinite() or tensor.isfinite().all())
