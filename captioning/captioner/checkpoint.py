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
from captioning.errors import InputError, format_value, is_memory_full, printable, removal_message
from captioning.files import opened, read_json
from captioning.progress_bar import say
from captioning.shelf import DEFAULT_MODEL, FOLDER, path_of

CONFIG_KEY = "captioner"
"""The key of the captioner's config in a checkpoint, or in the metadata of an exported file."""

REWARD_KEY = "reward"
"""The key of that config for the signature of the rewards that the model was trained by, if any."""

MODEL_FILE, CONFIG_FILE = "model.safetensors", "config.json"
"""The files of an exported folder: tensors, and the captioner's config as JSON."""

MODEL_PREFIX = "model."
"""The prefix of the names of the model's tensors in a checkpoint of Lightning."""

BUILT_WITHOUT_VALUES = ("captioning", "torch", "torchvision")
"""Packages whose modules keep all their tensors in the state dict."""


def load(
    checkpoint: str | Path = DEFAULT_MODEL,
    device: str | torch.device = "cpu",
    bfloat16: bool = False,
    max_megapixels: float = MEGAPIXELS,
    kernels: bool | None = None,
) -> Captioner:
    """Load a captioner.

    Args:
        checkpoint: the name of a model that comes with the package (`captioning models`), a file of
            `captioning train`, a file or a folder of `captioning export`, or
            ``hf://owner/name@revision``, such a folder on the Hugging Face Hub (extra ``hub``; the
            revision may be left out).
        device: the device to compute on.
        bfloat16: whether to compute in bfloat16; see `InferenceNetwork`.
        max_megapixels: larger photo files are refused unread; at most 178.
        kernels: whether to use the fast kernels; see `InferenceNetwork`.

    Raises:
        InputError: the file is missing or not such a checkpoint.
    """
    path = path_of(checkpoint)
    config, tensors = read(path)
    size = (path / MODEL_FILE if path.is_dir() else path).stat().st_size
    with _one_line(path):
        captioner = _restored(config, tensors, size, kernels)
    captioner.network.bfloat16 = bfloat16
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
    """Turn any error into an InputError of one line that names the model's file."""
    try:
        yield
    except UnknownClassError as error:
        raise InputError(f"{path}: {error}") from None
    except Exception as error:  # a class may raise anything, and a user's class does
        if is_memory_full(error):
            raise
        summary = " ".join(str(error).split())[:200]
        line = removal_message(error) or f"a damaged or outdated checkpoint ({summary})"
        raise InputError(f"{path}: {line}") from None


class Uninitialised(TorchFunctionMode):
    """Skips `torch.nn.init`, which would import PyTorch's compiler on the device meta."""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if getattr(function, "__module__", None) == nn.init.__name__:
            return args[0] if args else kwargs["tensor"]
        return function(*args, **(kwargs or {}))


def _restored(config: Any, tensors: Any, size: int, kernels: bool | None) -> Captioner:
    """Build the captioner of a config, with the tensors of a file of `size` bytes.

    It is built on the device meta, so that shapes are compared before they take memory. It is built
    with values if a module reads them in its constructor, or if modules of other packages may keep
    tensors that are not in the state dict.
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
        modules = captioner.model.modules()
        packages = {type(module).__module__.partition(".")[0] for module in modules}
        is_built_without = packages.issubset(BUILT_WITHOUT_VALUES)
        if not is_built_without:
            captioner = Captioner.from_config(config, kernels)
        captioner.model.load_state_dict(state, assign=is_built_without)
    return captioner.freeze()


def fitted_tensors(
    parameters: dict[str, Tensor], tensors: dict[str, Any], file_size: int | float = inf
) -> dict[str, Tensor]:
    """Copy the tensors of a file, in the dtypes and memory formats of a model's parameters.

    A parameter that has two names remains one.

    Args:
        parameters: the model's state dict.
        tensors: the file's state dict.
        file_size: of the file, in bytes.

    Raises:
        InputError: names, shapes or kinds of numbers differ, numbers are not finite, or they are
            more than the file can hold.
    """
    if differing := parameters.keys() ^ tensors.keys():
        name = min(differing)
        problem = (
            f"lacks {name}" if name in parameters else f"unexpected tensor {format_value(name)}"
        )
        raise InputError(f"{problem}; this file belongs to another model")
    copies: dict[int, Tensor] = {}  # by the id of the parameter
    remaining_size = file_size
    for name, parameter in parameters.items():
        tensor, dtype, shape = tensors[name], parameter.dtype, parameter.shape
        if (
            not isinstance(tensor, Tensor)
            or tensor.is_floating_point() != parameter.is_floating_point()
            or (tensor.dtype != dtype and not parameter.is_floating_point())
            or tensor.nbytes > tensor.untyped_storage().nbytes()  # it repeats its numbers
        ):
            raise InputError(f"{name} is not a plain tensor of {dtype}")
        if tensor.shape != shape:
            raise InputError(
                f"{name} has the shape {list(tensor.shape)}, not {list(shape)}; this file "
                "belongs to another model"
            )
        if id(parameter) not in copies:
            remaining_size -= tensor.nbytes
        if remaining_size < 0:
            raise InputError(f"{name} shares its numbers with another tensor")
        copy = torch.empty_strided(shape, parameter.stride(), dtype=dtype).copy_(tensor)
        # A sum takes a tenth of the time, but may overflow.
        if not (copy.sum().isfinite() or copy.isfinite().all()):
            raise InputError(f"{name} holds numbers that are not finite; give another checkpoint")
        if isinstance(parameter, nn.Parameter):
            copy = nn.Parameter(copy, parameter.requires_grad)
        copies.setdefault(id(parameter), copy)
    return {name: copies[id(parameter)] for name, parameter in parameters.items()}


def read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read the captioner's config and the model's tensors from a file or an exported folder.

    Raises:
        InputError: the file is missing or damaged, or not such a file.
    """
    file = path / MODEL_FILE if path.is_dir() else path
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
                name.removeprefix(MODEL_PREFIX): value
                for name, value in saved["state_dict"].items()
                if isinstance(name, str) and name.startswith(MODEL_PREFIX)
            }
            config = saved[CONFIG_KEY]
            [pickle_size] = (
                entry.file_size for entry in entries if entry.filename.endswith("/data.pkl")
            )
            check_parts(config, pickle_size)
        else:
            with safe_open(file, framework="pt") as saved:
                config = json.loads((saved.metadata() or {}).get(CONFIG_KEY, "null"))
                tensors = {name: saved.get_tensor(name) for name in saved.keys()}  # noqa: SIM118
            config_file = file.with_name(CONFIG_FILE)
            if config is None and config_file.exists():  # of a folder
                config = read_json(config_file)
    except Exception:  # the libraries raise a dozen kinds for files that they did not write
        config = None
    if not isinstance(config, dict):
        raise InputError(f"{path}: damaged, or not a model of captioning")
    return config, tensors


def check_parts(value: Any, max_parts: int) -> None:
    """Raise ValueError if a value has too many parts, counted wherever they occur.

    A pickle of 300 bytes may hold a list of lists, each twice in the next, with a billion parts.
    """
    parts, count = [value], 0
    while parts:
        part = parts.pop()
        count += 1
        if count > max_parts:
            raise ValueError("more parts than bytes")
        if isinstance(part, dict):
            parts += part.values()
        elif isinstance(part, list | tuple | set):
            parts += part
