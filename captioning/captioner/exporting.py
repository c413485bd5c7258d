"""Exports captioners: as a folder with a model card, as one file, and as ONNX."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save

from captioning.captioner.calibration import Calibration
from captioning.captioner.captioner import Captioner
from captioning.captioner.checkpoint import CONFIG_FILE, CONFIG_KEY, MODEL_FILE, load, read
from captioning.errors import InputError
from captioning.files import (
    made_folder,
    read_json,
    remove_unfinished,
    write_json,
    written_whole,
)
from captioning.search import Search
from captioning.shelf import HUB_PREFIX, path_of, shipped_models

SUFFIX = ".safetensors"

CARD = "README.md"
"""The model card of an exported folder."""

ORIGINS = "origins"
"""Key of a model's configuration for the models that it was trained from."""

EVALUATION_FILES = ("report", "calibration", "grounding")
"""Files of `captioning evaluate` that the card shows; the last two only of some models."""


def export(
    model: str | Path | Captioner,
    path: str | Path,
    half: bool = False,
    calibration: Calibration | None = None,
    search: Search | None = None,
    evaluation: str | Path | None = None,
    license: str | None = None,
    onnx: bool = False,
    origins: Sequence[Mapping[str, str]] = (),
) -> None:
    """Write a captioner to a folder or a file that `load` reads.

    A folder gets ``model.safetensors``, ``config.json`` and a model card, ``README.md``, as the
    Hugging Face Hub wants them. No training can resume from it.

    Args:
        model: a captioner, or a model as `load` takes it.
        path: a folder, which is created if missing, or a file named ``*.safetensors``.
        half: keep 16 bits of each number. The model computes in single precision all the same.
        calibration: instead of the model's own.
        search: the default search, instead of the model's own.
        evaluation: a folder that `captioning evaluate` wrote, for the card of a folder.
        license: of the data that the model was trained on, for the card.
        onnx: write a folder of ONNX graphs and a card instead; see `write_onnx`.
        origins: the models that it was trained from, instead of those that its file names; see
            `origins_of`.

    Raises:
        InputError: the model is missing or damaged, or the name is of another kind of file.
    """
    path = Path(path)
    is_folder = path.is_dir() or not path.suffix
    if not is_folder and (onnx or path.suffix == ".onnx"):
        raise InputError(f"{path}: ONNX graphs need a folder; give --onnx and the name of one")
    if not is_folder and path.suffix != SUFFIX:
        raise InputError(f"{path}: give the name of a folder, or of a file that ends in {SUFFIX}")
    captioner = model if isinstance(model, Captioner) else load(model)
    config, tensors = captioner.config, captioner.model.state_dict()
    if not isinstance(model, Captioner):
        config, tensors = read(path_of(model))
    if origins:
        config = config | {ORIGINS: [dict(origin) for origin in origins]}
    origins = config.get(ORIGINS, ())
    if onnx:
        from captioning.captioner.onnx_graphs import write_onnx

        card = model_card(captioner, evaluation, license, onnx, origins)
        write_onnx(captioner, path, calibration)
        _write_card(card, path)
        return
    encoder = config["model"]["encoder"]
    if "weights" in encoder:  # a file's place on the training's machine
        config = config | {"model": config["model"] | {"encoder": encoder | {"weights": None}}}
    config = config | {"offset": captioner.model.encoder.offset(captioner.preprocessing.size)}
    if calibration is not None:
        config = config | {"calibration": asdict(calibration)}
    if search is not None:
        config = config | {"search": search.config}
    saved_tensors = {}
    for name, tensor in tensors.items():
        if half and tensor.is_floating_point() and tensor.half().isfinite().all():
            tensor = tensor.half()
        saved_tensors[name] = tensor.clone(memory_format=torch.contiguous_format)
    metadata = {CONFIG_KEY: json.dumps(config)}
    for file in (path / MODEL_FILE, path / CONFIG_FILE, path / CARD) if is_folder else (path,):
        remove_unfinished(file)
    if is_folder:
        card = model_card(captioner, evaluation, license, origins=origins)
        path, metadata = made_folder(path) / MODEL_FILE, {"format": "pt"}
        _write_card(card, path.parent)
        write_json(path.with_name(CONFIG_FILE), config)
    with written_whole(path) as temporary:
        # The writer of safetensors would not say that the disk is full.
        temporary.write_bytes(save(saved_tensors, metadata=metadata))


def origins_of(start: str | Path) -> list[dict[str, str]]:
    """The models that a training from `start` comes from, that one first, for its model card.

    Each has its name and, if it comes with the package, its data and their terms.
    """
    path = path_of(start)
    for shipped in shipped_models():
        if shipped.file == path:
            return [{"model": shipped.name, "data": shipped.data, "terms": shipped.licence}]
    name = str(start) if str(start).startswith(HUB_PREFIX) else path.name
    config, _ = read(path)
    return [{"model": name}, *config.get(ORIGINS, ())]


def _write_card(card: str, folder: Path) -> None:
    with written_whole(folder / CARD) as temporary:
        temporary.write_text(card, encoding="utf-8")


def model_card(
    captioner: Captioner,
    evaluation: str | Path | None = None,
    license: str | None = None,
    onnx: bool = False,
    origins: Sequence[Mapping[str, str]] = (),
) -> str:
    """Return the card as Markdown, after the YAML that the Hugging Face Hub reads; see `export`."""
    import yaml  # only here: loading a model needs neither
    from jinja2 import StrictUndefined, Template, TemplateError

    metadata = {
        "library_name": "onnx" if onnx else "captioning",
        "pipeline_tag": "image-to-text",
        "tags": ["image-captioning", "show-attend-and-tell"],
    }
    if license is not None:
        is_id = re.fullmatch(r"[a-z0-9.-]+", license)  # as in the Hub's list
        metadata |= {"license": license} if is_id else {"license": "other", "license_name": license}
    results: dict[str, Any] = dict.fromkeys(EVALUATION_FILES)
    for name in EVALUATION_FILES:
        file = Path(evaluation or "", f"{name}.json")
        if evaluation is not None and (name == "report" or file.exists()):
            results[name] = read_json(file)
    text = Path(__file__).with_name("card.md").read_text(encoding="utf-8")
    template = Template(
        text, trim_blocks=True, keep_trailing_newline=True, undefined=StrictUndefined
    )
    try:
        return template.render(
            results,
            metadata=yaml.safe_dump(metadata, allow_unicode=True),
            encoder=captioner.model.encoder.config,
            decoder=captioner.model.decoder.config,
            search=captioner.search.config,
            parameters=sum(parameter.numel() for parameter in captioner.model.parameters()),
            words=len(captioner.vocabulary),
            view=captioner.preprocessing,
            license=license,
            onnx=onnx,
            origins=origins,
        )
    except (AttributeError, TypeError, ValueError, TemplateError):
        raise InputError(f"{evaluation}: not what `captioning evaluate` writes") from None
