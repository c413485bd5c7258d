"""Loads captioners from the checkpoints of `captioning train`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from captioning.captioner.assignment import assign, built_without_numbers
from captioning.captioner.captioner import Captioner
from captioning.captioner.ensemble import ensemble
from captioning.configurable import UnknownClassError
from captioning.data.images import MEGAPIXELS, pixels_of
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
        checkpoint: the file; or several, for an ensemble that averages the models' word
            probabilities. An ensemble uses the first model's search.
        device: the device to compute on.
        bfloat16: whether to search in bfloat16; see `Captioner`.
        max_megapixels: larger photo files are refused unread; at most 178.
        kernels: whether to use the fast kernels; see `captioning.kernels`. Defaults to true, unless
            the environment sets ``CAPTIONING_KERNELS=off``.

    Raises:
        InputError: a file is missing or not such a checkpoint, the models of an ensemble have
            different vocabularies, or `max_megapixels` is out of its range.
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
        reason = str(error).removeprefix(f"{path}: ")
        raise InputError(f"{path}: a damaged or outdated checkpoint ({reason})") from None
    except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        summary = " ".join(str(error).split())[:200]  # a user's class may raise anything
        raise InputError(f"{path}: a damaged or outdated checkpoint ({summary})") from None
    check_checksum(path, saved)
    if empty is None or not assign(empty, tensors):
        captioner = Captioner.from_config(config)
        captioner.load_state_dict(tensors)
    return captioner


def read(path: Path) -> dict[str, Any]:
    """The content of a checkpoint, checked to hold a captioner's config and tensors.

    Raises:
        InputError: the file is missing or damaged, or not such a checkpoint.
    """
    if not path.exists():
        raise InputError(f"{path}: no such checkpoint; `captioning train` writes one")
    foreign = InputError(f"{path}: not a checkpoint of captioning; give one that `train` wrote")
    try:
        check_archive(path)
        # Memory-mapped, so that the optimizer's state, twice as large as the model, is not read.
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
    """The captioner's tensors in a checkpoint, by their names in the captioner."""
    prefix = "captioner."
    return {
        name.removeprefix(prefix): value
        for name, value in saved["state_dict"].items()
        if isinstance(name, str) and name.startswith(prefix)
    }


def check_checksum(path: Path, saved: dict[str, Any]) -> None:
    """Compare a checkpoint's config and tensors with the checksum that was written with them.

    If an older checkpoint has none, the whole file is read to verify its archive's checksums.

    Args:
        path: the file, for messages.
        saved: its content, with plain tensors.

    Raises:
        InputError: a checksum differs.
    """
    if (expected := saved.get("checksum")) is None:
        check_archive(path, whole=True)
    elif checksum(saved["captioner"], captioners_tensors(saved)) != expected:
        raise InputError(
            f"{path}: a damaged checkpoint (its checksum differs); copy it anew, or give another"
        )
