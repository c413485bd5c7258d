"""Loads captioners, from checkpoints of `train`, or from files or folders of `export`."""

import json
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from captioning.captioner.calibration import removed_features
from captioning.captioner.captioner import Captioner
from captioning.configurable import UnknownClassError
from captioning.data.images import MEGAPIXELS
from captioning.errors import InputError, is_memory_full, printable, removed, shown
from captioning.files import opened, read_json
from captioning.progress_bar import say
from captioning.shelf import DEFAULT, FOLDER, path_of

KEY = "captioner"
"""Where a checkpoint, or the metadata of an exported file, keeps the captioner's config."""

MODEL, CONFIG = "model.safetensors", "config.json"
"""The files of an exported folder: tensors, and the captioner's config as JSON."""

PREFIX = "model."
"""Of the names of the model's tensors in a checkpoint of Lightning."""

BUILT_WITHOUT_VALUES = ("captioning", "torch", "torchvision")
"""Packages whose modules keep all their tensors in the state dict."""


def load(
    checkpoint: str | Path = DEFAULT,
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
            revision may be left out).
        device: the device to compute on.
        bfloat16: whether to compute in bfloat16; see `Captioner`.
        max_megapixels: larger photo files are refused unread; at most 178.
        kernels: whether to use the fast kernels; see `Captioner`.

    Raises:
        InputError: the file is missing or not such a checkpoint.
    """
    path = path_of(checkpoint)
    config, tensors = read(path)
    size = (path / MODEL if path.is_dir() else path).stat().st_size
    with _one_line(path):
        captioner = _restored(config, tensors, size, kernels)
    captioner.bfloat16 = bfloat16
    if torch.device(device).type != "cpu":
        captioner.to(device)
    if path.parent != FOLDER:  # wrong values are noticed now, not at the first photo
        side = captioner.preprocessing.size
        with _one_line(path), torch.random.fork_rng(devices=[]):
            captioner(torch.zeros(3, side, side, dtype=torch.uint8))
    if captioner.calibration and (features := removed_features(config["calibration"])):
        say(
            f"{printable(path)}: confidences are without {' and '.join(features)}, which this "
            "version does not use; captioning calibrate fits the others"
        )
    captioner.preprocessing.max_pixels = int(max_megapixels * 1e6)
    return captioner


@contextmanager
def _one_line(path: Path) -> Iterator[None]:
    """Raise what is wrong with a model's file as an InputError that names it."""
    try:
        yield
    except UnknownClassError as error:
        raise InputError(f"{path}: {error}") from None
    except Exception as error:  # a class may raise anything, and a user's class does
        if is_memory_full(error):
            raise
        summary = " ".join(str(error).split())[:200]
        line = removed(error) or f"a damaged or outdated checkpoint ({summary})"
        raise InputError(f"{path}: {line}") from None


class Uninitialised(TorchFunctionMode):
    """Skips `torch.nn.init`, whose draws on the device meta import PyTorch's compiler."""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if getattr(function, "__module__", None) == nn.init.__name__:
            return args[0] if args else kwargs["tensor"]
        return function(*args, **(kwargs or {}))


def _restored(config: Any, tensors: Any, size: int, kernels: bool | None) -> Captioner:
    """The captioner of a config, with the tensors of a file of `size` bytes as its parameters.

    Built on the device meta, so that sizes are compared before they take memory; with values if a
    module reads them while it is built, or if modules of other packages may read or keep tensors
    that are not in the state dict.
    """
    with torch.random.fork_rng(devices=[]):
        try:
            with Uninitialised():
                captioner = Captioner.from_config(config, kernels, "meta")
        except InputError:
            raise
        except Exception:  # also what is wrong with the config, which is raised again
            captioner = Captioner.from_config(config, kernels)
        state = fitted_tensors(captioner.model.state_dict(keep_vars=True), tensors, size)
        kinds = {type(module).__module__.partition(".")[0] for module in captioner.model.modules()}
        if has_others := not kinds.issubset(BUILT_WITHOUT_VALUES):
            captioner = Captioner.from_config(config, kernels)
        captioner.model.load_state_dict(state, assign=not has_others)
    return captioner.freeze()


def fitted_tensors(
    wanted: dict[str, Tensor], found: dict[str, Any], size: int | float = inf
) -> dict[str, Tensor]:
    """Tensors from a file in the dtypes and memory formats of those that they replace.

    A parameter that has two names remains one.

    Raises:
        InputError: names, shapes or kinds of numbers differ, numbers are not finite, or they are
            more than the file of `size` bytes can hold.
    """
    if differing := wanted.keys() ^ found.keys():
        name = min(differing)
        problem = f"lacks {name}" if name in wanted else f"unexpected tensor {shown(name)}"
        raise InputError(f"{problem}; this file belongs to another model")
    made: dict[int, Tensor] = {}
    for name, like in wanted.items():
        value = found[name]
        if (
            not isinstance(value, Tensor)
            or value.is_floating_point() != like.is_floating_point()
            or (value.dtype != like.dtype and not like.is_floating_point())
            or value.nbytes > value.untyped_storage().nbytes()  # it repeats its numbers
        ):
            raise InputError(f"{name} is not a plain tensor of {like.dtype}")
        if value.shape != like.shape:
            raise InputError(
                f"{name} has the shape {list(value.shape)}, not {list(like.shape)}; this file "
                "belongs to another model"
            )
        size -= 0 if id(like) in made else value.nbytes
        if size < 0:
            raise InputError(f"{name} shares its numbers with another tensor")
        copied = torch.empty_strided(like.shape, like.stride(), dtype=like.dtype).copy_(value)
        # A sum takes a tenth of the time, but may overflow.
        if not (copied.sum().isfinite() or copied.isfinite().all()):
            raise InputError(f"{name} holds numbers that are not finite; give another checkpoint")
        if isinstance(like, nn.Parameter):
            copied = nn.Parameter(copied, like.requires_grad)
        made.setdefault(id(like), copied)
    return {name: made[id(like)] for name, like in wanted.items()}


def read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The captioner's config in a file or an exported folder, and its model's tensors.

    Raises:
        InputError: the file is missing or damaged, or not such a file.
    """
    file = path / MODEL if path.is_dir() else path
    if not file.exists():
        raise InputError(
            f"{path}: no such model; give a file that `captioning train` wrote, or a name that "
            "`captioning models` lists"
        )
    size = file.stat().st_size
    with opened(file) as content:
        is_archive = zipfile.is_zipfile(content)
    config = None
    try:
        if is_archive:  # of Lightning
            with zipfile.ZipFile(file) as archive:
                entries = archive.infolist()
                # If compressed or overlapping, a small file could be read as a huge one.
                is_plain = {entry.compress_type for entry in entries} == {zipfile.ZIP_STORED}
                is_plain &= sum(entry.file_size for entry in entries) <= size
                is_whole = is_plain and archive.testzip() is None
            # Memory-mapped: the optimizer's state, twice as large as the model, is not read.
            saved = torch.load(file, "cpu", weights_only=True, mmap=True) if is_whole else {}
            tensors = {
                name.removeprefix(PREFIX): value
                for name, value in saved["state_dict"].items()
                if isinstance(name, str) and name.startswith(PREFIX)
            }
            config = saved[KEY]
            [pickled] = (e.file_size for e in entries if e.filename.endswith("/data.pkl"))
            check_parts(config, most=pickled)
        else:
            with safe_open(file, framework="pt") as saved:
                config = json.loads((saved.metadata() or {}).get(KEY, "null"))
                tensors = {name: saved.get_tensor(name) for name in saved.keys()}  # noqa: SIM118
            beside = file.with_name(CONFIG)
            if config is None and beside.exists():  # of a folder
                config = read_json(beside)
    except Exception:  # the libraries raise a dozen kinds for files that they did not write
        config = None
    if not isinstance(config, dict):
        raise InputError(f"{path}: damaged, or not a model of captioning")
    return config, tensors


def check_parts(value: Any, most: int) -> None:
    """Raise ValueError if a value has more parts, counted wherever they occur.

    A pickle of 300 bytes may hold a list of lists, each twice in the next, with a billion parts.
    """
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if (most := most - 1) < 0:
            raise ValueError("more parts than bytes")
        if isinstance(part, dict):
            waiting += part.values()
        elif isinstance(part, list | tuple | set):
            waiting += part
