"""Lists the metrics. To add one, write a file with its scorer and a line here.

A user's own module appends to `METRICS`; the option ``--import`` names the module.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from captioning.data.tokens import words_of
from captioning.errors import InputError, removal_message
from captioning.metrics.bleu import bleu_scores
from captioning.metrics.cider import cider_scores
from captioning.metrics.meteor import Meteor
from captioning.metrics.rouge import rouge_scores
from captioning.metrics.scores import Scorer, Scores


@dataclass(frozen=True)
class Metric:
    """A metric; computed only on request if it needs a package, otherwise always."""

    name: str  # the value of the option --metric
    scorer: Callable[[], Scorer]  # raises InputError if the package is missing
    needs: str | None = None  # a package that is not installed by default


METRICS: list[Metric] = [
    Metric("BLEU", lambda: bleu_scores),
    Metric("ROUGE-L", lambda: rouge_scores),
    Metric("CIDEr", lambda: cider_scores),
    Metric("METEOR", Meteor, needs="pycocoevalcap"),
]


def scorers(requested: Sequence[str] = ()) -> dict[str, Scorer]:
    """The scorers of requested metrics and of those without optional packages, by name.

    Raises:
        InputError: a name is unknown, or a package that a metric needs is missing.
    """
    names = [metric.name for metric in METRICS]
    for name in set(requested).difference(names):
        line = f"--metric {name}: unknown; choose from {', '.join(names)}"
        raise InputError(removal_message(line) or line)
    return {
        metric.name: metric.scorer()
        for metric in METRICS
        if metric.needs is None or metric.name in requested
    }


def score_tokens(
    scorer: Scorer, candidates: Sequence[list[str]], references: Sequence[Sequence[list[str]]]
) -> Scores:
    """Score the tokens of one caption per image against the tokens of its references.

    Scorers receive words. ROUGE-L receives tokens, in which `22 3/4` with a no-break space is one,
    since the COCO evaluation splits captions at plain spaces for ROUGE-L alone.
    """
    if not candidates or not all(references):
        raise ValueError("each image needs a caption and at least one reference")
    if scorer is rouge_scores:
        return scorer(candidates, references)
    reference_words = [list(map(words_of, image_references)) for image_references in references]
    return scorer(list(map(words_of, candidates)), reference_words)
