"""Significance of the difference between two systems' captions of the same images.

The test is the paired bootstrap: Koehn, "Statistical Significance Tests for Machine Translation
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


class Comparison(NamedTuple):
    """A corpus score of two systems, with the interval and the p-value of their difference.

    Both use the same samples of the paired bootstrap. The p-value is two-sided: twice the share of
    samples in which the other system is as good or better. It is below 0.05 where the 95 % interval
    excludes 0.
    """

    first: float
    second: float
    interval: tuple[float, float]  # of second - first
    p_value: float


@stage("comparing the systems")
def compare_scores(
    first: Scores, second: Scores, *, samples: int = RESAMPLES, seed: int = 0
) -> dict[str, Comparison]:
    """Test the differences of two systems' scores; returns a comparison by name of the score.

    Args:
        first: the scores of system A.
        second: the scores of system B, by the same metrics, with the same images in the same order.
        samples: the number of bootstrap samples, which all scores share.
        seed: of the samples.
    """
    images = len(next(iter(first.images.values())))

    def differences(counts: NDArray[Any]) -> dict[str, NDArray[np.float64]]:
        first_scores, second_scores = first.resampled(counts), second.resampled(counts)
        return {name: second_scores[name] - first_scores[name] for name in first_scores}

    bootstrap = resampled(differences, images, seed=seed, count=samples)
    return {
        name: Comparison(
            score,
            second.corpus[name],
            percentile_interval(bootstrap[name]),
            two_sided_p_value(bootstrap[name]),
        )
        for name, score in first.corpus.items()
    }


def two_sided_p_value(differences: NDArray[np.float64]) -> float:
    """Double the smaller share of samples at or beyond 0; the observed data count as a sample."""
    beyond = min((differences <= ROUNDING).sum(), (differences >= -ROUNDING).sum())
    return min(1.0, 2 * float(beyond + 1) / (len(differences) + 1))


def comparison_table(comparisons: Mapping[str, Comparison], note: str) -> str:
    """Format the scores with their differences, and a note below."""
    header = ("", "A", "B", "B - A", f"{LEVEL * 100:.0f} % interval", "p-value")
    rows = []
    for name, (first, second, (low, high), p_value) in comparisons.items():
        scores = f"{first:.4f}", f"{second:.4f}", f"{second - first:+.4f}"
        rows.append((name, *scores, f"{low:+.4f} to {high:+.4f}", f"{p_value:.4f}"))
    return f"{aligned([header, *rows])}\n{note}"
