"""How fast captions are scored against their references."""

import contextlib
import importlib
import io
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch

from benchmarks.agreement import compare
from benchmarks.measure import Contender, interleaved
from benchmarks.setting import Setting
from benchmarks.table import Row, rate_rows
from captioning.data.shapes import captions, random_scene
from captioning.metrics.report import score

OURS, COCO = Contender("ours"), Contender("pycocoevalcap")

SCORERS = {
    "BLEU-1": "bleu.bleu.Bleu",
    "ROUGE-L": "rouge.rouge.Rouge",
    "CIDEr": "cider.cider.Cider",
    "METEOR": "meteor.meteor.Meteor",
}
"""Of pycocoevalcap, what computes a score of our report; BLEU-1 stands for all four BLEUs."""


def scoring_rows(setting: Setting) -> Iterator[Row]:
    """Captions per second of our report.

    Beside it the COCO evaluation's own tokenizer and scorers, those of the scores that our report
    has, where pycocoevalcap and the Java that it needs are installed.

    Raises:
        DisagreementError: its BLEU is not ours.
    """
    candidates, references = made_up_captions(setting.captions)
    mine = score(candidates, references)
    tasks: dict[Contender, Callable[[], object]] = {OURS: partial(score, candidates, references)}
    if find_spec("pycocoevalcap") and shutil.which("java"):
        wanted = [path for name, path in SCORERS.items() if name in mine]
        its = coco_scores(wanted, candidates, references)["bleu.bleu.Bleu"]
        bleu = [mine[f"BLEU-{n}"] for n in range(1, 5)]
        compare("BLEU", torch.tensor(bleu), torch.tensor(its))
        tasks[COCO] = partial(coco_scores, wanted, candidates, references)
    yield from rate_rows(
        "metric report",
        f"{len(references[0])} references each",
        "captions/s",
        interleaved(tasks, setting.rounds, setting.device),
        len(candidates),
        reference=COCO,
    )


def made_up_captions(count: int) -> tuple[dict[int, str], dict[int, tuple[str, ...]]]:
    """A caption and references for each of `count` drawn scenes; the caption is of other words."""
    rng = np.random.default_rng(0)
    scenes = [random_scene(rng) for _ in range(count)]
    references = {number: captions(scene, rng) for number, scene in enumerate(scenes)}
    candidates = {number: captions(scene, rng)[0] for number, scene in enumerate(scenes)}
    return candidates, references


def coco_scores(
    scorers: Sequence[str], candidates: Mapping[int, str], references: Mapping[int, Sequence[str]]
) -> dict[str, Any]:
    """The scores of pycocoevalcap by its scorers, tokenizing included."""
    tokenizer = _made("tokenizer.ptbtokenizer.PTBTokenizer")
    written, found = (
        tokenizer.tokenize(
            {image: [{"caption": text} for text in texts] for image, texts in captions.items()}
        )
        for captions in (references, {image: [text] for image, text in candidates.items()})
    )
    with contextlib.redirect_stdout(io.StringIO()):  # the scorers tell how they get on
        return {scorer: _made(scorer).compute_score(written, found)[0] for scorer in scorers}


def _made(path: str) -> Any:
    module, name = path.rsplit(".", 1)
    return getattr(importlib.import_module(f"pycocoevalcap.{module}"), name)()
