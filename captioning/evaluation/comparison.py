"""Two systems' captions of the same images: is one better, or is the difference chance?

By the paired bootstrap: Koehn, "Statistical Significance Tests for Machine Translation
Evaluation", EMNLP 2004, https://aclanthology.org/W04-3250.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from captioning.evaluation.report import aligned
from captioning.metrics.scores import LEVEL, RESAMPLES, Scores, percentile_interval, resampled
from captioning.progress_bar import stage

ROUNDING = 1e-12
"""Differences this close count as equal: the order of a sum changes its last bits."""


class Compared(NamedTuple):
    """A corpus score of two systems, with the interval and the p-value of their difference.

    Both are of the same samples of the paired bootstrap: the p-value is two-sided, twice the share
    of samples in which the other system is as good or better. So it is below 0.05 where the 95 %
    interval excludes 0.
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
    return {
        name: Compared(
            score,
            second.corpus[name],
            percentile_interval(bootstrap[name]),
            two_sided_p_value(bootstrap[name]),
        )
        for name, score in first.corpus.items()
    }


def two_sided_p_value(differences: NDArray[np.float64]) -> float:
    """Twice the smaller share of samples at or beyond 0; the observed data count as one sample."""
    beyond = min((differences <= ROUNDING).sum(), (differences >= -ROUNDING).sum())
    return min(1.0, 2 * float(beyond + 1) / (len(differences) + 1))


def comparison_table(comparison: Mapping[str, Compared], note: str) -> str:
    """The scores with their differences, and a note below."""
    header = ("", "A", "B", "B - A", f"{LEVEL * 100:.0f} % interval", "p-value")
    rows = [
        (
            *(name, f"{first:.4f}", f"{second:.4f}", f"{second - first:+.4f}"),
            "{:+.4f} to {:+.4f}".format(*interval),
            f"{p_value:.4f}",
        )
        for name, (first, second, interval, p_value) in comparison.items()
    ]
    return f"{aligned([header, *rows])}\n{note}"
