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
from benchmarks.rows import Row, rate_rows
from benchmarks.setting import Setting
from captioning.data.tokens import tokenize
from captioning.metrics.bleu import bleu_scores
from captioning.metrics.cider import cider_scores
from captioning.metrics.rouge import rouge_scores
from captioning.shapes import captions, random_scene

OURS, COCO = Contender("ours"), Contender("pycocoevalcap")

SCORERS = {
    "BLEU": (bleu_scores, "bleu.bleu.Bleu"),
    "ROUGE-L": (rouge_scores, "rouge.rouge.Rouge"),
    "CIDEr": (cider_scores, "cider.cider.Cider"),
}
"""What computes a score: our function, and the class in pycocoevalcap."""

Words = Sequence[Sequence[str]]


def scoring_rows(setting: Setting) -> Iterator[Row]:
    """Captions per second of BLEU, ROUGE-L and CIDEr together, from words and from captions.

    Beside them the COCO evaluation's own scorers, where pycocoevalcap is installed, and for
    captions its tokenizer too, where there is the Java that it needs.

    Raises:
        DisagreementError: its scores are not ours.
    """
    candidates, references = made_up_captions(setting.captions)
    words = [tokenize(caption) for caption in candidates]
    written = [[tokenize(caption) for caption in several] for several in references]
    installed = find_spec("pycocoevalcap") is not None
    from_words: dict[Contender, Callable[[], object]] = {OURS: partial(scores, words, written)}
    from_captions: dict[Contender, Callable[[], object]] = {
        OURS: partial(scores_of_captions, candidates, references)
    }
    if installed:
        joined = {image: [" ".join(one)] for image, one in enumerate(words)}
        all_joined = {image: list(map(" ".join, each)) for image, each in enumerate(written)}
        from_words[COCO] = partial(coco_scores, joined, all_joined)
    if installed and shutil.which("java"):
        from_captions[COCO] = partial(coco_scores_of_captions, candidates, references)
    for name, tasks in (("words", from_words), ("captions", from_captions)):
        _compare(f"scores of {name}", tasks)
        yield from rate_rows(
            f"BLEU, ROUGE-L and CIDEr of {name}",
            f"{len(candidates):,} captions, {len(references[0])} references each",
            "captions/s",
            interleaved(tasks, setting.rounds, setting.device),
            len(candidates),
        )


def made_up_captions(count: int) -> tuple[list[str], list[Sequence[str]]]:
    """A caption and references for each of `count` drawn scenes; the caption is of other words."""
    rng = np.random.default_rng(0)
    scenes = [random_scene(rng) for _ in range(count)]
    references: list[Sequence[str]] = [captions(scene, rng) for scene in scenes]
    return [captions(scene, rng)[0] for scene in scenes], references


def scores(candidates: Words, references: Sequence[Words]) -> dict[str, Any]:
    """Our scores of words."""
    return {
        name: list(ours(candidates, references).corpus.values())
        for name, (ours, _) in SCORERS.items()
    }


def scores_of_captions(
    candidates: Sequence[str], references: Sequence[Sequence[str]]
) -> dict[str, Any]:
    """Our scores of captions, tokenizing included."""
    return scores(
        [tokenize(caption) for caption in candidates],
        [[tokenize(caption) for caption in several] for several in references],
    )


def coco_scores(
    candidates: Mapping[int, Sequence[str]], references: Mapping[int, Sequence[str]]
) -> dict[str, Any]:
    """The scores of words, joined by spaces, by pycocoevalcap."""
    with contextlib.redirect_stdout(io.StringIO()):  # the scorers tell how they get on
        return {
            name: _made(path).compute_score(references, candidates)[0]
            for name, (_, path) in SCORERS.items()
        }


def coco_scores_of_captions(
    candidates: Sequence[str], references: Sequence[Sequence[str]]
) -> dict[str, Any]:
    """The scores of captions by pycocoevalcap, tokenizing included."""
    tokenizer = _made("tokenizer.ptbtokenizer.PTBTokenizer")
    return coco_scores(
        *(
            tokenizer.tokenize(
                {image: [{"caption": one} for one in several] for image, several in enumerate(side)}
            )
            for side in ([[caption] for caption in candidates], references)
        )
    )


def _compare(what: str, tasks: Mapping[Contender, Callable[[], Any]]) -> None:
    """Compare the scores of all with ours."""
    mine, *others = (task() for task in tasks.values())
    for its in others:
        for name in SCORERS:
            values = (torch.tensor(found[name], dtype=torch.float64) for found in (mine, its))
            compare(f"{name}, {what}", *values)


def _made(path: str) -> Any:
    module, name = path.rsplit(".", 1)
    return getattr(importlib.import_module(f"pycocoevalcap.{module}"), name)()
