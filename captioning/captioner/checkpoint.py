"""Captioners from the files that `captioning train` writes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from captioning.captioner.assignment import assign, built_without_numbers
from captioning.captioner.captioner import Captioner
from captioning.captioner.ensemble import ensemble
from captioning.configurable import UnknownClassError
from captioning.data.megapixels import MEGAPIXELS, pixels_of
from captioning.errors import InputError
from captioning.integrity import (
    DamagedError,
    check_archive,
    check_tensors,
    checksum,
)


def load(
    checkpoint: str | Path | Sequence[str | Path],
    device: str | torch.device = "cpu",
    bfloat16: bool = False,
    max_megapixels: float = MEGAPIXELS,
    kernels: bool | None = None,
) -> Captioner:
    """The captioner in a checkpoint of `captioning train`, ready to caption.

    Args:
        checkpoint: the file; or several, for an ensemble whose words have the mean of the models'
            probabilities. It searches as the first one was trained to.
        device: where it shall compute.
        bfloat16: whether it searches in bfloat16; see `Captioner`.
        max_megapixels: files of photos with more are refused unread; at most 178.
        kernels: whether the fast kernels compute it; see `captioning.kernels`. Defaults to yes,
            unless the environment says ``CAPTIONING_KERNELS=off``.

    Raises:
        InputError: a file is missing or is no such checkpoint, or the models of an ensemble do
            not know the same words, or `max_megapixels` is out of its range.
    """
    paths = [checkpoint] if isinstance(checkpoint, (str, Path)) else checkpoint
    if not paths:
        raise InputError("no checkpoint to load; give one, or several for an ensemble")
    captioners = [_captioner(Path(path)) for path in paths]
    for captioner in captioners:
        captioner.preprocessing.max_pixels = pixels_of(max_megapixels)
    captioner = captioners[0]
    if len(captioners) > 1:
        captioner = ensemble(captioners, [str(path) for path in paths])
    captioner.searches_in_bfloat16 = bfloat16
    if kernels is not None:
        captioner.uses_kernels = kernels
    return captioner.eval().to(device)


def _captioner(path: Path) -> Captioner:
    saved = read(path)
    config, tensors = saved["captioner"], captioners_tensors(saved)
    try:
        empty = built_without_numbers(lambda: Captioner.from_config(config))
        captioner = empty or Captioner.from_config(config)
        check_tensors(path, tensors, captioner.state_dict())
    except UnknownClassError as error:
        raise InputError(f"{path}: {error}") from None
    except InputError as error:
        told = str(error).removeprefix(f"{path}: ")
        raise InputError(f"{path}: a damaged or outdated checkpoint ({told})") from None
    except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        summary = " ".join(str(error).split())[:200]  # of a class that somebody else has written
        raise InputError(f"{path}: a damaged or outdated checkpoint ({summary})") from None
    check_checksum(path, saved)
    if empty is None or not assign(empty, tensors):
        captioner = Captioner.from_config(config)
        captioner.load_state_dict(tensors)
    return captioner


def read(path: Path) -> dict[str, Any]:
    """What a checkpoint holds, of which its captioner's config and tensors are there.

    Raises:
        InputError: the file is missing or damaged, or is no such checkpoint.
    """
    if not path.exists():
        raise InputError(f"{path}: no such checkpoint; `captioning train` writes one")
    foreign = InputError(f"{path}: not a checkpoint of captioning; give one that `train` wrote")
    try:
        check_archive(path)
        # Mapped, so that of the optimizer's state, twice as large as the model, nothing is read.
        saved = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except DamagedError:
        raise foreign from None
    except InputError:
        raise
    except Exception:  # torch.load raises a dozen kinds for files that it did not write
        raise foreign from None
    if not isinstance(saved, dict) or not isinstance(saved.get("captioner"), dict):
        raise foreign
    if not isinstance(saved.get("state_dict"), dict):
        raise InputError(f"{path}: a damaged or outdated checkpoint (it holds no tensors)")
    return saved


def captioners_tensors(saved: dict[str, Any]) -> dict[str, Any]:
    """The captioner's tensors of a checkpoint, by the captioner's own names."""
    prefix = "captioner."
    return {
        name.removeprefix(prefix): value
        for name, value in saved["state_dict"].items()
        if isinstance(name, str) and name.startswith(prefix)
    }


def check_checksum(path: Path, saved: dict[str, Any]) -> None:
    """Compare a checkpoint's config and tensors with the checksum that was written with them.

    Of a checkpoint that has none, from before there were any, the whole file is read for the
    checksums of its archive.

    Args:
        path: the file, for messages.
        saved: its content, whose tensors are plain ones.

    Raises:
        InputError: they differ.
    """
    if (expected := saved.get("checksum")) is None:
        check_archive(path, whole=True)
    elif checksum(saved["captioner"], captioners_tensors(saved)) != expected:
        raise InputError(
            f"{path}: a damaged checkpoint (its checksum differs); copy it anew, or give another"
        )
