"""Two systems' captions of the same images: is one better, or is the difference chance?

By the paired bootstrap: Koehn, "Statistical Significance Tests for Machine Translation
Evaluation", EMNLP 2004, https://aclanthology.org/W04-3250.
"""

import csv
import io
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from captioning.evaluation.report import aligned
from captioning.metrics.scores import LEVEL, RESAMPLES, Scores, percentile_interval, resampled
from captioning.progress_bar import stage

ROUNDING = 1e-12
"""Differences this close count as equal: the order of a sum changes its last bits."""

P_VALUE = "p bootstrap"

Format = Literal["text", "csv"]


class Compared(NamedTuple):
    """A corpus score of two systems, with the interval and the p-value of their difference.

    Both are by the paired bootstrap. As in sacreBLEU and Moses, the absolute differences of the
    samples, shifted to a mean of 0, are the distribution under the null hypothesis. For clear
    differences the p-value is half of a two-sided one. Unlike sacreBLEU's, ties are extreme: equal
    systems have p = 1.
    """

    first: float
    second: float
    interval: tuple[float, float]  # of second - first
    p_value: float


@stage("comparing the systems")
def compared(
    first: Scores, second: Scores, samples: int = RESAMPLES, seed: int = 0
) -> dict[str, Compared]:
    """The scores of two systems by name, with tests of their differences.

    All scores use the same samples.

    Args:
        first: the scores of system A.
        second: those of system B, by the same metrics and of the same images in the same order.
        samples: of the bootstrap.
        seed: of the samples.
    """
    images = len(next(iter(first.images.values())))

    def differences(counts: NDArray[Any]) -> dict[str, NDArray[np.float64]]:
        theirs = second.resampled(counts)
        return {name: theirs[name] - own for name, own in first.resampled(counts).items()}

    bootstrap = resampled(differences, images, seed, samples)
    found = {}
    for name, own in first.corpus.items():
        difference, distances = second.corpus[name] - own, np.abs(bootstrap[name])
        found[name] = Compared(
            own,
            second.corpus[name],
            percentile_interval(bootstrap[name]),
            share_as_extreme(difference, distances - distances.mean()),
        )
    return found


def share_as_extreme(difference: float, distances: NDArray[np.float64]) -> float:
    """The p-value of a difference: the share of distances that are at least as large.

    The observed difference counts as one of them.
    """
    extreme = distances >= abs(difference) - ROUNDING
    return float(extreme.sum() + 1) / (len(extreme) + 1)


def comparison_table(found: Mapping[str, Compared], note: str, form: Format = "text") -> str:
    """The scores with their differences; as CSV in full precision, as text with a note below."""
    if form == "csv":
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["score", "A", "B", "difference", "low", "high", P_VALUE])
        for name, (first, second, interval, p_value) in found.items():
            writer.writerow([name, first, second, second - first, *interval, p_value])
        return text.getvalue().rstrip("\n")
    header = ("", "A", "B", "B - A", f"{LEVEL * 100:.0f} % interval", P_VALUE)
    rows = [
        (
            *(name, f"{first:.4f}", f"{second:.4f}", f"{second - first:+.4f}"),
            "{:+.4f} to {:+.4f}".format(*interval),
            f"{p_value:.4f}",
        )
        for name, (first, second, interval, p_value) in found.items()
    ]
    return f"{aligned([header, *rows])}\n{note}"
