"""Loads captioners, from checkpoints of `train`, or from files or folders of `export`."""

import json
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor
from torch.overrides import TorchFunctionMode

from captioning.captioner.captioner import Captioner
from captioning.captioner.ensemble import ensemble
from captioning.configurable import UnknownClassError
from captioning.data.images import MEGAPIXELS, pixels_of
from captioning.errors import InputError
from captioning.integrity import bounded_parameters, check_archive, check_tensors
from captioning.shelf import DEFAULT, path_of
from captioning.untrusted import opened, read_json

KEY = "captioner"
"""Where a checkpoint, or the metadata of an exported file, keeps the captioner's config."""

MODEL, CONFIG = "model.safetensors", "config.json"
"""The files of an exported folder: tensors, and the captioner's config as JSON."""

MOST_CONFIG_BYTES = 100_000_000
"""The most bytes of a config, as of the header of a safetensors file."""

PREFIX = "model."
"""What the names of the model's tensors begin with in a checkpoint of Lightning."""


def load(
    checkpoint: str | Path | Sequence[str | Path] = DEFAULT,
    device: str | torch.device = "cpu",
    bfloat16: bool = False,
    max_megapixels: float = MEGAPIXELS,
    kernels: bool | None = None,
) -> Captioner:
    """A captioner, ready to caption.

    Args:
        checkpoint: the name of a model that comes with the package (`captioning models`), a file of
            `captioning train`, a file or a folder of `captioning export`, or
            ``hf://owner/name@revision``, such a folder on the Hugging Face Hub (extra ``hub``; the
            revision may be left out); or several, for an ensemble that averages the models' word
            probabilities. An ensemble uses the first model's search.
        device: the device to compute on.
        bfloat16: whether to compute in bfloat16; see `Captioner`.
        max_megapixels: larger photo files are refused unread; at most 178.
        kernels: whether to use the fast kernels; see `captioning.kernels`. Defaults to true, unless
            the environment sets ``CAPTIONING_KERNELS=off``.

    Raises:
        InputError: a file is missing or not such a checkpoint, the models of an ensemble have
            different vocabularies or preprocessings, or `max_megapixels` is out of its range.
    """
    paths = [checkpoint] if isinstance(checkpoint, (str, Path)) else checkpoint
    if not paths:
        raise InputError("no checkpoint to load; give one, or several for an ensemble")
    captioners = [_captioner(path_of(path), kernels) for path in paths]
    for captioner in captioners:
        captioner.preprocessing.max_pixels = pixels_of(max_megapixels)
    captioner = captioners[0]
    if len(captioners) > 1:
        captioner = ensemble(captioners, [str(path) for path in paths])
    captioner.bfloat16 = bfloat16
    return captioner.to(device)


def _captioner(path: Path, kernels: bool | None) -> Captioner:
    config, tensors = read(path)
    try:
        with bounded_parameters(), _WithoutInitialisation():
            captioner = Captioner.from_config(config, kernels)
        check_tensors(path, tensors, captioner.model.state_dict())
        captioner.model.load_state_dict(tensors)
    except UnknownClassError as error:
        raise InputError(f"{path}: {error}") from None
    except InputError as error:
        reason = str(error).removeprefix(f"{path}: ")
        raise InputError(f"{path}: a damaged or outdated checkpoint ({reason})") from None
    except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        summary = " ".join(str(error).split())[:200]  # a user's class may raise anything
        raise InputError(f"{path}: a damaged or outdated checkpoint ({summary})") from None
    return captioner.freeze()


def read(path: Path) -> tuple[Any, dict[str, Tensor]]:
    """The captioner's config in a file or an exported folder, and its model's tensors.

    Raises:
        InputError: the file is missing or damaged, or not such a file.
    """
    if path.is_dir():
        if not (path / MODEL).exists():
            raise InputError(
                f"{path}: a folder without {MODEL}; give a regular file, or a folder that "
                "`captioning export` wrote"
            )
        path = path / MODEL
    if not path.exists():
        raise InputError(
            f"{path}: no such model; give a file that `captioning train` wrote, or a name that "
            "`captioning models` lists"
        )
    with opened(path) as file:
        is_archive = zipfile.is_zipfile(file)
    if is_archive:
        saved = read_checkpoint(path)
        config = saved[KEY]
        tensors = {
            name.removeprefix(PREFIX): value
            for name, value in saved["state_dict"].items()
            if isinstance(name, str) and name.startswith(PREFIX)
        }
    else:
        config, tensors = _read_safetensors(path)
    if not isinstance(config, dict):
        raise InputError(f"{path}: not a model of captioning; give one that `train` wrote")
    if "model" not in config and "decoder" in config:
        raise InputError(
            f"{path}: written by an earlier version of captioning; train the model again"
        )
    return config, tensors


def _read_safetensors(path: Path) -> tuple[Any, dict[str, Tensor]]:
    try:
        with safe_open(path, framework="pt") as file:
            config = json.loads((file.metadata() or {}).get(KEY, "null"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError):
        raise InputError(
            f"{path}: damaged, or not a model of captioning; give one that `train` wrote"
        ) from None
    beside = path.with_name(CONFIG)
    if config is None and beside.exists():  # of a folder
        config = read_json(beside, MOST_CONFIG_BYTES)
    return config, tensors


def read_checkpoint(path: Path) -> dict[str, Any]:
    """The content of a checkpoint of `captioning train`.

    Raises:
        InputError: the file is damaged, or not such a checkpoint.
    """
    try:
        check_archive(path)
        # Memory-mapped, so that the optimizer's state, twice as large as the model, is not read.
        saved = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except InputError:
        raise
    except Exception:  # torch.load raises a dozen kinds for files that it did not write
        saved = None
    if not isinstance(saved, dict) or not all(
        isinstance(saved.get(name), dict) for name in ("state_dict", KEY)
    ):
        raise InputError(f"{path}: not a checkpoint of captioning; give one that `train` wrote")
    return saved


class _WithoutInitialisation(TorchFunctionMode):
    """Skips the random initialisation of parameters, which are loaded afterwards.

    Drawing the hundred million random numbers of a VGG takes seconds.
    """

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Call the function, unless it fills a tensor with random numbers."""
        kwargs = kwargs or {}
        fills = function in (Tensor.normal_, Tensor.uniform_)
        if fills or getattr(function, "__module__", None) == "torch.nn.init":
            return args[0] if args else kwargs["tensor"]
        return function(*args, **kwargs)
