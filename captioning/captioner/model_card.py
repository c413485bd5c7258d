"""Writes the model card of an exported captioner."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from captioning.captioner.captioner import Captioner
from captioning.configurable import bare_name
from captioning.errors import InputError
from captioning.untrusted import read_json

CARD = "README.md"

USE = """\
```python
import captioning  # pip install 'captioning[hub]'
captioner = captioning.load("hf://OWNER/NAME")  # or the folder of these files
print(captioner("photo.jpg").sentence)
```"""

LIMITS = (
    "It says what is usual in the photos that it was trained on: it takes things that were rare "
    "there for others, counts badly, and may name what is not there. Gender, age and activity are "
    "guesses; do not use it to describe people where that matters. Photos of another kind, such as "
    "medical pictures, drawings or scans, get captions too, and they are wrong. Have a person "
    "check captions that others rely on. The maps say where the model looked, not why it chose a "
    "word."
)

GROUNDING = ("pointing", "pointing, Gaussian", "pointing, minus Gaussian", "mass in box")
"""The scores of a grounding report that the card shows, where they are."""


def model_card(
    captioner: Captioner, evaluation: str | Path | None = None, license: str | None = None
) -> str:
    """The card as Markdown, behind the YAML that the Hugging Face Hub reads.

    Args:
        captioner: the model.
        evaluation: a folder that `captioning evaluate` wrote; without one, the card says that
            nothing was measured.
        license: of the data that the model was trained on.

    Raises:
        InputError: a file of the evaluation is missing or damaged.
    """
    head = {
        "library_name": "captioning",
        "pipeline_tag": "image-to-text",
        "tags": ["image-captioning", "show-attend-and-tell"],
    }
    if license is not None:
        is_id = re.fullmatch(r"[a-z0-9.-]+", license)  # as in the Hub's list
        head |= {"license": license} if is_id else {"license": "other", "license_name": license}
    sections = {
        "Model": _described(captioner),
        "Use": USE,
        **_measured(None if evaluation is None else Path(evaluation)),
        "Limits": LIMITS,
        "Licence of the data": license or "Not stated by whoever exported the model.",
    }
    import yaml  # only here: loading a model needs none

    text = "".join(f"\n## {title}\n\n{text}\n" for title, text in sections.items())
    return f"---\n{yaml.safe_dump(head, allow_unicode=True)}---\n\n# Captions of photos\n{text}"


def _described(captioner: Captioner) -> str:
    model, view = captioner.model, captioner.preprocessing
    parameters = sum(parameter.numel() for parameter in model.parameters()) / 1e6
    encoder, search = model.encoder.config, captioner.search.config
    parts = [bare_name(part.config["class"]) for part in (model.encoder, model.decoder)]
    backbone = f" ({encoder['backbone']})" if "backbone" in encoder else ""
    width = f" of width {search['width']}" if "width" in search else ""
    return (
        "An image captioner in the manner of Show, Attend and Tell (Xu et al. 2015), which writes "
        "a caption word by word and shows where it looked for each: "
        f"{parts[0]}{backbone} and {parts[1]}, {parameters:.1f} million parameters, "
        f"{len(captioner.vocabulary):,} words, photos at {view.size} pixels (fit: {view.fit}), "
        f"{bare_name(search['class'])}{width}."
    )


def _measured(folder: Path | None) -> dict[str, str]:
    """The sections of an evaluation by their titles."""
    if folder is None:
        return {"Evaluation": "Nothing was measured when this model was exported."}
    report = read_json(folder / "report.json")
    further = {
        name: read_json(folder / f"{name}.json")
        for name in ("calibration", "grounding")
        if (folder / f"{name}.json").exists()
    }
    try:
        found = {"Evaluation": _scores(report)}
        if "calibration" in further:
            found["Calibration"] = _calibration(further["calibration"])
        if "grounding" in further:
            found["Where it looks"] = _grounding(further["grounding"])
    except (AttributeError, KeyError, TypeError, ValueError, IndexError):
        raise InputError(
            f"{folder}: not what `captioning evaluate` writes; evaluate the model again"
        ) from None
    return found


def _scores(report: Any) -> str:
    data = report.get("data")
    of = f"the split `{data['split']}` of `{data['name']}`" if data else "a data set not named"
    return (
        f"{report['statistics']['images']:.0f} images of {of}, with {report['interval']:.0%} "
        "confidence intervals over images:\n\n" + _table(report["scores"])
    )


def _calibration(report: Mapping[str, Any]) -> str:
    values = {name: {"value": each} for name, each in report.items() if isinstance(each, float)}
    return (
        "Calibration on the same images. A caption is good if it scores at least as the median of "
        "people's captions:\n\n" + _table(values)
    )


def _grounding(report: Mapping[str, Any]) -> str:
    scores = {name: report["all"][name] for name in GROUNDING if name in report["all"]}
    return (
        f"The map `{report['map']}` against the boxes of {report['all']['mentions']} named objects "
        "in the same images. Pointing is how often its peak is inside the box; the Gaussian is a "
        "map of the middle of every image:\n\n" + _table(scores)
    )


def _table(scores: Mapping[str, Mapping[str, float]]) -> str:
    """Scores with their intervals, if they have some, as a Markdown table."""
    has_intervals = any("low" in score for score in scores.values())
    lines = ["| | score | interval |", "|---|---|---|"] if has_intervals else ["| | |", "|---|---|"]
    for name, score in scores.items():
        line = f"| {name} | {score['value']:.3f} |"
        if has_intervals:
            line += f" {score['low']:.3f} to {score['high']:.3f} |" if "low" in score else " |"
        lines.append(line)
    return "\n".join(lines)
