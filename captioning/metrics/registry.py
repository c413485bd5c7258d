"""The metrics that there are: a new one is a file with its scorer, and a line here.

A user's own module appends to the list, and ``--import`` names the module.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from captioning.errors import UsageError
from captioning.metrics.bleu import bleu_scores
from captioning.metrics.cider import cider_scores
from captioning.metrics.meteor.scorer import Meteor
from captioning.metrics.meteor_java import MeteorJava
from captioning.metrics.rouge import rouge_scores
from captioning.metrics.scores import Scorer
from captioning.metrics.spice import Spice
from captioning.metrics.words import OfTokens


@dataclass(frozen=True)
class Metric:
    """A metric by name.

    Attributes:
        name: by which ``--metric`` asks for it.
        scorer: makes what computes it; raises InputError where something that it needs is missing.
        needs: what it needs, if anything; it is then computed only where an option asks for it,
            and else always, in the validations of a training too.
    """

    name: str
    scorer: Callable[[], Scorer]
    needs: str | None = None


METRICS: list[Metric] = [
    Metric("BLEU", lambda: bleu_scores),
    Metric("ROUGE-L", lambda: OfTokens(rouge_scores)),
    Metric("CIDEr", lambda: cider_scores),
    Metric("METEOR", Meteor, needs="pycocoevalcap"),
    Metric("METEOR-Java", MeteorJava, needs="Java"),
    Metric("SPICE", Spice, needs="Java 8 to 14"),
]


def scorers(asked_for: Sequence[str] = ()) -> dict[str, Scorer]:
    """What computes the metrics, by their names.

    Args:
        asked_for: names of metrics beside those that are always computed.

    Raises:
        UsageError: a name is unknown.
        InputError: something is missing that one of them needs.
    """
    known = [metric.name for metric in METRICS]
    for name in asked_for:
        if name not in known:
            raise UsageError(f"--metric {name}: unknown; choose from {', '.join(known)}")
    return {
        metric.name: metric.scorer()
        for metric in METRICS
        if metric.needs is None or metric.name in asked_for
    }
