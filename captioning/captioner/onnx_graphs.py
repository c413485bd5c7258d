"""ONNX: a captioner as three graphs that run without PyTorch, and a file with its settings.

Shapes: B images, N captions per image, S pixels, L regions, D annotation width, V vocabulary.
"""

import warnings
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import asdict, fields, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from captioning.captioner.calibration import Calibration
from captioning.captioner.captioner import Captioner
from captioning.configurable import bare_name
from captioning.data.tokens import FUNCTION_WORDS
from captioning.data.vocabulary import BOS, PAD, SPECIAL
from captioning.errors import InputError
from captioning.files import made_folder, write_json, written_whole
from captioning.maps.evidence_map import evidence, evidence_shares, has_evidence
from captioning.models import Model
from captioning.models.decoder import Memory
from captioning.search.search import generable_log_probs

OPSET = 17
"""The version of ONNX's operators."""


@torch.no_grad()
def write_onnx(
    captioner: Captioner, folder: str | Path, calibration: Calibration | None = None
) -> None:
    """Write a captioner as ONNX graphs, whose axes B and N may have any length.

    - ``encoder.onnx``: images, uint8 (B, 3, S, S) -> annotations (B, L, D).
    - ``remember.onnx``: annotations -> the decoder's memory, ``memory.*`` (B, ...), and its state
      before the first word of one caption, ``state.*`` (B, 1, ...).
    - ``step.onnx``: tokens (B, N), ``state.*`` (B, N, ...) and what it needs of ``memory.*`` ->
      log_probs (B, N, V) of the next word, minus infinity for what no search generates, attention
      weights (B, N, L) before the next word, the evidence map (B, N, L) of the tokens, if the
      decoder has one, and the state after the step, ``next.*``.
    - ``captioner.json``: the words, those that the search says once, the preprocessing, the search
      and the calibration, by default the captioner's own.

    Raises:
        InputError: the extra is missing, the folder cannot be written to, or a part of the model
            has no ONNX operator.
    """
    if find_spec("onnx") is None:  # the exporter checks its graphs by it
        raise InputError("ONNX graphs need the extra onnx; run pip install 'captioning[onnx]'")
    folder = made_folder(folder)
    model = deepcopy(captioner.model).cpu().float().eval()  # tracing leaves traces in an encoder
    size = captioner.preprocessing.size
    rows, columns = model.encoder.grid(size, size)
    # Large batches are split, which a graph would fix, so the encoder is traced with one image.
    images = torch.zeros(1, 3, size, size, dtype=torch.uint8)
    annotations = model.encode(images).repeat(2, 1, 1)
    memory = model.remember(annotations)
    tokens = torch.full((2, 3), BOS)
    # The state after a word: a cache of words has grown by one, and is not empty.
    first = model.decoder.step(tokens, model.decoder.start(memory, 3), memory).state
    second = model.decoder.step(tokens, first, memory).state
    memories = _tensors(model, memory)
    states = {f"state.{name}": value for name, value in first.items()}
    axes: dict[str, dict[int, str]] = {name: {0: "B"} for name in memories}
    axes |= {name: {0: "B"} for name in ("images", "annotations")}
    scores = ["log_probs", "weights", *(["evidence"] if has_evidence(model.decoder) else [])]
    axes |= {name: {0: "B", 1: "N"} for name in ("tokens", *scores)}
    for name, value in first.items():
        shapes = zip(value.shape, second[name].shape, strict=True)
        grown = [axis for axis, (before, after) in enumerate(shapes) if before != after]
        axes[f"state.{name}"] = {0: "B", 1: "N", **dict.fromkeys(grown, "T")}
        axes[f"next.{name}"] = {0: "B", 1: "N", **dict.fromkeys(grown, "T + 1")}
    results = [*memories, *states]
    _write(folder / "encoder.onnx", model.encoder, {"images": images}, ["annotations"], axes)
    _write(folder / "remember.onnx", _Remember(model), {"annotations": annotations}, results, axes)
    step = _Step(model, memory, list(first), (rows, columns))
    inputs = {"tokens": tokens, **states, **memories}
    outputs = [*scores, *(f"next.{name}" for name in first)]
    _write(folder / "step.onnx", step, inputs, outputs, axes)
    search, vocabulary = captioner.search.config, captioner.vocabulary
    calibration = calibration or captioner.calibration
    unrepeatable_ids: list[int] = []
    if not captioner.search.repeats:
        unrepeatable_ids = [index for index in vocabulary.unrepeatable_ids if index != PAD]
    nonadjacent_ids = [index for index in vocabulary.nonadjacent_ids if index != PAD]
    settings = {
        "preprocessing": {"size": size, "fit": captioner.preprocessing.fit},
        "grid": [rows, columns],
        "offset": model.encoder.cell_offset(size),
        "search": search | {"class": bare_name(search["class"])},
        "tokenizer": vocabulary.tokenizer,
        "joints": vocabulary.joints,
        "words": [*SPECIAL, *(vocabulary.spellings.get(word, word) for word in vocabulary.words)],
        "once": unrepeatable_ids,
        "nonadjacent": nonadjacent_ids,
        "ranks": {vocabulary.ids([word])[1]: rank for word, rank in vocabulary.ranks.items()},
        "functions": sorted(FUNCTION_WORDS),
        "calibration": calibration and asdict(calibration),
        "calibrated": calibration is not None and calibration.search == search,
    }
    write_json(folder / "captioner.json", settings)


class _Remember(nn.Module):
    """From annotations to the tensors of the memory and of the state of one caption."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def forward(self, annotations: Tensor) -> tuple[Tensor, ...]:
        memory = self.model.remember(annotations)
        state = self.model.decoder.start(memory, 1)
        return (*_tensors(self.model, memory).values(), *state.values())


class _Step(nn.Module):
    """A step of the decoder, from and to single tensors.

    `memory` is an example of its memories, and `names` are those of its state's tensors.
    """

    def __init__(
        self, model: Model, memory: Memory, names: Sequence[str], grid: tuple[int, int]
    ) -> None:
        super().__init__()
        self.decoder = model.decoder
        self.memory = memory
        self.names = names
        self.grid = grid

    def forward(self, tokens: Tensor, *parts: Tensor) -> tuple[Tensor, ...]:
        state = dict(zip(self.names, parts, strict=False))
        memories = iter(parts[len(self.names) :])
        memory = _mapped(self.memory, "memory", lambda name, part: next(memories))
        step = self.decoder.step(tokens, state, memory)
        scores = [generable_log_probs(step.logits), step.weights]
        if has_evidence(self.decoder):
            token_evidence = evidence(self.decoder, next(memories), tokens[..., None])
            scores.append(evidence_shares(token_evidence, self.grid).squeeze(2))
        return (*scores, *(step.state[name] for name in self.names))


def _tensors(model: Model, memory: Memory) -> dict[str, Tensor]:
    """Return the tensors of a memory by name, such as ``memory.keys`` or ``memory.keys.0``.

    They include what the evidence map is computed from, if the decoder has one.
    """
    tensors: dict[str, Tensor] = {}
    _mapped(memory, "memory", tensors.setdefault)
    if has_evidence(model.decoder):
        tensors["memory.regions"] = model.decoder.output_context(memory.annotations)
    return tensors


def _mapped(part: Any, name: str, change: Callable[[str, Tensor], Tensor]) -> Any:
    """Return a memory, or a part of one, with each of its tensors changed."""
    if isinstance(part, Tensor):
        return change(name, part)
    if isinstance(part, tuple):
        return tuple(
            _mapped(member, f"{name}.{index}", change) for index, member in enumerate(part)
        )
    if isinstance(part, Memory):
        changes = {}
        for field in fields(part):
            value = getattr(part, field.name)
            changes[field.name] = _mapped(value, f"{name}.{field.name}", change)
        return replace(part, **changes)
    return part


def _write(
    path: Path,
    module: nn.Module,
    inputs: dict[str, Tensor],
    outputs: Sequence[str],
    axes: dict[str, dict[int, str]],
) -> None:
    """Write one graph, by the older of PyTorch's exporters, which takes a second.

    It warns that it is older, and of sizes that are constant in the graph, as they are here.
    """
    with written_whole(path) as temporary, warnings.catch_warnings():
        for category in (DeprecationWarning, torch.jit.TracerWarning):
            warnings.simplefilter("ignore", category)
        try:
            torch.onnx.export(
                module,
                tuple(inputs.values()),
                str(temporary),
                input_names=list(inputs),
                output_names=list(outputs),
                dynamic_axes={name: axes[name] for name in (*inputs, *outputs)},
                opset_version=OPSET,
                do_constant_folding=False,  # a folded transpose would be a second copy
                dynamo=False,
            )
        except torch.onnx.errors.OnnxExporterError as error:
            reason = " ".join(str(error).split())[:200]
            raise InputError(f"{path}: the model has no form in ONNX ({reason})") from None
