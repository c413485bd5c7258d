"""Two systems' captions of the same images: is one better, or is the difference chance?

- Koehn, "Statistical Significance Tests for Machine Translation Evaluation", EMNLP 2004,
  https://aclanthology.org/W04-3250: the paired bootstrap.
- Riezler and Maxwell, "On Some Pitfalls in Automatic Evaluation and Significance Testing for MT",
  2005, https://aclanthology.org/W05-0908: approximate randomisation.
"""

import csv
import io
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from captioning.evaluation.report import aligned
from captioning.metrics.scores import (
    LEVEL,
    RESAMPLES,
    Scores,
    in_blocks,
    percentile_interval,
    resampled,
)
from captioning.progress_bar import stage

TRIALS = 10_000

ROUNDING = 1e-12
"""Differences this close count as equal: the order of a sum changes its last bits."""

P_VALUES = ("p bootstrap", "p randomisation")

Format = Literal["text", "csv", "markdown"]


class Compared(NamedTuple):
    """A corpus score of two systems, with two p-values of their difference.

    By the paired bootstrap, as in sacreBLEU and Moses, the absolute differences of the samples,
    shifted to a mean of 0, are the distribution under the null hypothesis. For clear differences
    that is half of a two-sided p-value. Unlike sacreBLEU's, ties are extreme: equal systems have
    p = 1. By randomisation, whose p-value is two-sided, it is the absolute differences after random
    swaps.
    """

    first: float
    second: float
    interval: tuple[float, float]  # of second - first, by the paired bootstrap
    p_bootstrap: float
    p_randomisation: float


@stage("comparing the systems")
def compared(
    first: Scores,
    second: Scores,
    samples: int = RESAMPLES,
    trials: int = TRIALS,
    seed: int = 0,
) -> dict[str, Compared]:
    """The scores of two systems by name, with tests of their differences.

    All scores use the same samples and trials.

    Args:
        first: the scores of system A.
        second: those of system B, by the same metrics and of the same images in the same order.
        samples: of the bootstrap.
        trials: of the randomisation.
        seed: of both.
    """
    images, rng = len(next(iter(first.images.values()))), np.random.default_rng(seed)

    def differences(counts: NDArray[Any]) -> dict[str, NDArray[np.float64]]:
        theirs = second.resampled(counts)
        return {name: theirs[name] - own for name, own in first.resampled(counts).items()}

    bootstrap = resampled(differences, images, seed, samples)
    swapped = in_blocks(
        lambda swaps: first.differences_when_swapped(second, swaps.astype(float)),
        lambda rows: rng.random((rows, images)) < 0.5,
        images,
        trials,
    )
    found = {}
    for name, own in first.corpus.items():
        difference, distances = second.corpus[name] - own, np.abs(bootstrap[name])
        found[name] = Compared(
            *(own, second.corpus[name], percentile_interval(bootstrap[name])),
            share_as_extreme(difference, distances - distances.mean()),
            share_as_extreme(difference, np.abs(swapped[name])),
        )
    return found


def share_as_extreme(difference: float, distances: NDArray[np.float64]) -> float:
    """The p-value of a difference: the share of distances that are at least as large.

    The observed difference counts as one of them (Riezler and Maxwell 2005, figure 1).
    """
    extreme = distances >= abs(difference) - ROUNDING
    return float(extreme.sum() + 1) / (len(extreme) + 1)


def comparison_table(found: Mapping[str, Compared], note: str, form: Format = "text") -> str:
    """The scores with their differences; as CSV in full precision, otherwise with a note below."""
    if form == "csv":
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["score", "A", "B", "difference", "low", "high", *P_VALUES])
        for name, (first, second, interval, *p_values) in found.items():
            writer.writerow([name, first, second, second - first, *interval, *p_values])
        return text.getvalue().rstrip("\n")
    header = ("", "A", "B", "B - A", f"{LEVEL * 100:.0f} % interval", *P_VALUES)
    rows = [
        (
            *(name, f"{first:.4f}", f"{second:.4f}", f"{second - first:+.4f}"),
            "{:+.4f} to {:+.4f}".format(*interval),
            *(f"{p:.4f}" for p in p_values),
        )
        for name, (first, second, interval, *p_values) in found.items()
    ]
    if form == "text":
        return f"{aligned([header, *rows])}\n{note}"
    rule = ("---", *["--:"] * (len(header) - 1))
    lines = [f"| {' | '.join(cells)} |" for cells in (header, rule, *rows)]
    return "\n".join([*lines, "", note])
