"""Exports captioners: as a folder with a model card, as one file, and as ONNX."""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from safetensors.torch import save
from torch import Tensor

from captioning.captioner.calibration import Calibration
from captioning.captioner.captioner import Captioner
from captioning.captioner.checkpoint import CONFIG, KEY, MODEL, load, read
from captioning.configurable import bare_name
from captioning.errors import InputError
from captioning.files import made_folder, read_json, write_json, written_whole
from captioning.models.encoder import measured_offset
from captioning.shelf import path_of

SUFFIX = ".safetensors"

CARD = "README.md"
"""The model card of an exported folder."""

USE = """\
```python
import captioning  # pip install 'captioning[hub]'
captioner = captioning.load("hf://OWNER/NAME")  # or the folder of these files
print(captioner("photo.jpg").sentence)
```"""

WARNING = (
    "It says what is usual in its training photos: it takes rare things for others, counts badly, "
    "and may name what is not there. Gender, age and activity are guesses. Captions of other kinds "
    "of pictures, such as drawings or medical images, are wrong. Have a person check captions that "
    "others rely on. The maps say where the model looked, not why it chose a word."
)

GROUNDING = ("pointing", "pointing, Gaussian", "pointing, minus Gaussian", "mass in box")
"""The scores of a grounding report that the card shows, where they are."""


def export(
    model: str | Path | Captioner,
    path: str | Path,
    half: bool = False,
    calibration: Calibration | None = None,
    evaluation: str | Path | None = None,
    license: str | None = None,
    onnx: bool = False,
) -> None:
    """Write a captioner to a folder or a file that `load` reads.

    A folder gets ``model.safetensors``, ``config.json`` and a model card, ``README.md``, as the
    Hugging Face Hub wants them. No training can resume from it.

    Args:
        model: a captioner, or a model as `load` takes it.
        path: a folder, which is created if missing, or a file named ``*.safetensors``.
        half: keep 16 bits of each number. The model computes in single precision all the same.
        calibration: instead of the model's own.
        evaluation: a folder that `captioning evaluate` wrote, for the card of a folder.
        license: of the data that the model was trained on, for the card.
        onnx: write a folder of ONNX graphs instead; see `write_onnx`.

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
    if onnx:
        from captioning.captioner.onnx_graphs import write_onnx

        write_onnx(captioner, path)
        return
    config, tensors = captioner.config, captioner.model.state_dict()
    if not isinstance(model, Captioner):
        config, tensors = read(path_of(model))
    encoder = config["model"]["encoder"]
    if "weights" in encoder:  # a file's place on the training's machine
        config = config | {"model": config["model"] | {"encoder": encoder | {"weights": None}}}
    if "offset" not in config:
        size = captioner.preprocessing.size
        config = config | {"offset": measured_offset(captioner.model.encoder, size)}
    if calibration is not None:
        config = config | {"calibration": asdict(calibration)}
    kept = {name: (_halved(each) if half else each.clone()) for name, each in tensors.items()}
    if not is_folder:
        _write(path, kept, {KEY: json.dumps(config)})
        return
    card = model_card(captioner, evaluation, license)
    folder = made_folder(path)
    with written_whole(folder / CARD) as temporary:
        temporary.write_text(card, encoding="utf-8")
    write_json(folder / CONFIG, config)
    _write(folder / MODEL, kept, {"format": "pt"})


def _write(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    contiguous = {name: value.contiguous() for name, value in tensors.items()}
    with written_whole(path) as temporary:
        # Its own writer would not say that the disk is full.
        temporary.write_bytes(save(contiguous, metadata=metadata))


def _halved(value: Tensor) -> Tensor:
    """In half precision, unless it holds integers or exceeds the range."""
    halved = value.half() if value.is_floating_point() else value
    return halved if halved.isfinite().all() else value.clone()


def model_card(
    captioner: Captioner, evaluation: str | Path | None = None, license: str | None = None
) -> str:
    """The card as Markdown, behind the YAML that the Hugging Face Hub reads; see `export`."""
    import yaml  # only here: loading a model needs none

    head = {
        "library_name": "captioning",
        "pipeline_tag": "image-to-text",
        "tags": ["image-captioning", "show-attend-and-tell"],
    }
    if license is not None:
        is_id = re.fullmatch(r"[a-z0-9.-]+", license)  # as in the Hub's list
        head |= {"license": license} if is_id else {"license": "other", "license_name": license}
    model, view = captioner.model, captioner.preprocessing
    parts = model.encoder.config, model.decoder.config, captioner.search.config
    encoder, decoder, search = (bare_name(part["class"]) for part in parts)
    backbone = f" ({parts[0]['backbone']})" if "backbone" in parts[0] else ""
    width = f" of width {parts[2]['width']}" if "width" in parts[2] else ""
    described = (
        "An image captioner in the manner of Show, Attend and Tell (Xu et al. 2015), which shows "
        f"where it looked for each word: {encoder}{backbone} and {decoder}, "
        f"{sum(each.numel() for each in model.parameters()) / 1e6:.1f} million parameters, "
        f"{len(captioner.vocabulary):,} words, photos at {view.size} pixels (fit: {view.fit}), "
        f"{search}{width}."
    )
    measured = {"Evaluation": "Nothing was measured when this model was exported."}
    if evaluation is not None:
        try:
            measured = _measured(Path(evaluation))
        except (AttributeError, LookupError, TypeError, ValueError):
            raise InputError(f"{evaluation}: not what `captioning evaluate` writes") from None
    sections = {
        "Model": described,
        "Use": USE,
        **measured,
        "Limits": WARNING,
        "Licence of the data": license or "Not stated by whoever exported the model.",
    }
    text = "".join(f"\n## {title}\n\n{text}\n" for title, text in sections.items())
    return f"---\n{yaml.safe_dump(head, allow_unicode=True)}---\n\n# Captions of photos\n{text}"


def _measured(folder: Path) -> dict[str, str]:
    """The sections of an evaluation by their titles."""
    report = read_json(folder / "report.json")
    data = report.get("data")
    of = f"the split `{data['split']}` of `{data['name']}`" if data else "a data set not named"
    found = {
        "Evaluation": f"{report['statistics']['images']:.0f} images of {of}, with "
        f"{report['interval']:.0%} confidence intervals over images:\n\n{_table(report['scores'])}"
    }
    if (folder / "calibration.json").exists():
        errors = read_json(folder / "calibration.json").items()
        values = {name: {"value": each} for name, each in errors if isinstance(each, float)}
        found["Calibration"] = (
            "Calibration on the same images. A caption is good if it scores at least as the median "
            f"of people's captions:\n\n{_table(values)}"
        )
    if (folder / "grounding.json").exists():
        grounding = read_json(folder / "grounding.json")
        every = grounding["all"]
        found["Where it looks"] = (
            f"The map `{grounding['map']}` against the boxes of {every['mentions']} named objects. "
            "Pointing is how often its peak is inside the box; the Gaussian is a map of the middle "
            "of every image:\n\n"
            + _table({name: every[name] for name in GROUNDING if name in every})
        )
    return found


def _table(scores: Mapping[str, Mapping[str, float]]) -> str:
    """Scores with their intervals, if they have some, as a Markdown table."""
    lines = ["| | score | interval |", "|---|---|---|"]
    for name, score in scores.items():
        interval = f"{score['low']:.3f} to {score['high']:.3f} " if "low" in score else ""
        lines.append(f"| {name} | {score['value']:.3f} | {interval}|")
    return "\n".join(lines)
