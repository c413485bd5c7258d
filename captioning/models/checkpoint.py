"""Captioners from the files that `captioning train` writes."""

from collections.abc import Sequence
from pathlib import Path

import torch

from captioning.data.megapixels import MEGAPIXELS, pixels_of
from captioning.errors import InputError
from captioning.models.captioner import Captioner
from captioning.models.ensemble import ensemble
from captioning.models.startup import WithoutRandomStart


def load(
    checkpoint: str | Path | Sequence[str | Path],
    device: str | torch.device = "cpu",
    bfloat16: bool = False,
    max_megapixels: float = MEGAPIXELS,
) -> Captioner:
    """The captioner in a checkpoint of `captioning train`, ready to caption.

    Args:
        checkpoint: the file; or several, for an ensemble whose words have the mean of the models'
            probabilities. It searches as the first one was trained to.
        device: where it shall compute.
        bfloat16: whether it searches in bfloat16; see `Captioner`.
        max_megapixels: files of photos with more are refused unread; at most 178.

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
    return captioner.eval().to(device)


def _captioner(path: Path) -> Captioner:
    foreign = InputError(f"{path}: not a checkpoint of captioning; give one that `train` wrote")
    try:
        # Mapped, so that of the optimizer's state, twice as large as the model, nothing is read.
        saved = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except FileNotFoundError:
        raise InputError(f"{path}: no such checkpoint; `captioning train` writes one") from None
    except Exception:  # torch.load raises a dozen kinds for files that it did not write
        raise foreign from None
    if not isinstance(saved, dict) or not isinstance(saved.get("captioner"), dict):
        raise foreign
    try:
        with WithoutRandomStart():
            captioner = Captioner.from_config(saved["captioner"])
        prefix = "captioner."
        captioner.load_state_dict(
            {
                name.removeprefix(prefix): value
                for name, value in saved["state_dict"].items()
                if name.startswith(prefix)
            }
        )
    except (InputError, KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        summary = " ".join(str(error).split())[:200]  # load_state_dict names all that is missing
        raise InputError(f"{path}: a damaged or outdated checkpoint ({summary})") from None
    return captioner
