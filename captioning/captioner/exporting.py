"""Exports captioners: as a folder with a model card, as one file, and as ONNX."""

import json
from pathlib import Path
from typing import Any

from safetensors.torch import save
from torch import Tensor

from captioning.captioner.calibration import Calibration
from captioning.captioner.captioner import Captioner
from captioning.captioner.checkpoint import CONFIG, KEY, MODEL, load, read
from captioning.captioner.model_card import CARD, model_card
from captioning.errors import InputError
from captioning.files import made_folder, write_json, written_whole
from captioning.shelf import path_of

SUFFIX = ".safetensors"


def export(
    model: str | Path | Captioner,
    path: str | Path,
    half: bool = False,
    calibration: Calibration | None = None,
    evaluation: str | Path | None = None,
    license: str | None = None,
    onnx: bool = False,
) -> None:
    """Write a captioner, or the model of a checkpoint, to a folder or a file that `load` reads.

    A folder gets ``model.safetensors``, ``config.json`` and a model card, ``README.md``, as the
    Hugging Face Hub wants them. Without the optimizer's state the model has a third of the size, in
    half precision a sixth. No training can resume from it.

    Args:
        model: a captioner, or a model as `load` takes it.
        path: a folder, which is created if missing, or a file named ``*.safetensors``.
        half: keep 16 bits of each number. The model computes in single precision all the same.
        calibration: the model's; by default the one that it has.
        evaluation: a folder that `captioning evaluate` wrote, for the card of a folder.
        license: of the data that the model was trained on, for the card.
        onnx: write a folder of ONNX graphs instead; see the page of file formats.

    Raises:
        InputError: the model is missing or damaged, the name is of another kind of file, or
            nothing can be written there.
    """
    path = Path(path)
    is_folder = _is_folder(path, onnx)
    if not isinstance(model, Captioner):
        model = path_of(model)
    captioner = model if isinstance(model, Captioner) else load(model)
    if onnx:
        from captioning.captioner.onnx_graphs import write_onnx

        write_onnx(captioner, path)
        return
    config, tensors = captioner.config, captioner.model.state_dict()
    if not isinstance(model, Captioner):
        config, tensors = read(model)
    config = _shared(config, calibration)
    kept = {
        name: (_halved(value) if half else value.clone()).contiguous()
        for name, value in tensors.items()
    }
    if not is_folder:
        _write(path, kept, {KEY: json.dumps(config)})
        return
    card = model_card(captioner, evaluation, license)
    folder = made_folder(path)
    with written_whole(folder / CARD) as temporary:
        temporary.write_text(card, encoding="utf-8")
    write_json(folder / CONFIG, config)
    _write(folder / MODEL, kept, {"format": "pt"})


def _is_folder(path: Path, onnx: bool) -> bool:
    """Whether a target is a folder; raises InputError for the name of another kind of file."""
    if path.suffix == ".onnx":
        raise InputError(
            f"{path}: a captioner is three ONNX graphs, so they need a folder; give --onnx and the "
            "name of one"
        )
    if path.is_dir() or not path.suffix:
        return True
    if onnx:
        raise InputError(f"{path}: ONNX graphs need a folder; give its name, without a suffix")
    if path.suffix != SUFFIX:
        raise InputError(f"{path}: give the name of a folder, or of a file that ends in {SUFFIX}")
    return False


def _shared(config: dict[str, Any], calibration: Calibration | None) -> dict[str, Any]:
    """The config with this calibration, without the place of a file on the training's machine."""
    encoder = config["model"]["encoder"]
    if "weights" in encoder:
        config = config | {"model": config["model"] | {"encoder": encoder | {"weights": None}}}
    return config if calibration is None else config | {"calibration": calibration.config}


def _write(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    with written_whole(path) as temporary:
        # Its own writer would not say that the disk is full.
        temporary.write_bytes(save(tensors, metadata=metadata))


def _halved(value: Tensor) -> Tensor:
    """The tensor in half precision; unchanged if it holds integers or exceeds the range."""
    halved = value.half() if value.is_floating_point() else value
    return halved if halved.isfinite().all() else value.clone()
