"""Two systems' captions of the same images: is one better, or is the difference chance?

- Koehn, "Statistical Significance Tests for Machine Translation Evaluation", EMNLP 2004,
  https://aclanthology.org/W04-3250: the paired bootstrap.
- Riezler and Maxwell, "On Some Pitfalls in Automatic Evaluation and Significance Testing for MT",
  2005, https://aclanthology.org/W05-0908: approximate randomisation.
"""

import csv
import io
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from captioning.errors import printable
from captioning.evaluation.report import aligned
from captioning.metrics.scores import (
    BLOCK,
    LEVEL,
    RESAMPLES,
    Interval,
    Scores,
    percentile_interval,
    resamples,
)
from captioning.progress_bar import stage

TRIALS = 10_000

ROUNDING = 1e-12
"""Differences this close count as equal: the order of a sum changes its last bits."""

P_VALUES = ("p bootstrap", "p randomisation")

Format = Literal["text", "csv", "markdown"]


class Compared(NamedTuple):
    """A corpus score of two systems.

    Attributes:
        first: the score of system A.
        second: the score of system B.
        interval: of the difference B - A, by the paired bootstrap.
        p_bootstrap: see `bootstrap_p`.
        p_randomisation: see `randomisation_p`.
    """

    first: float
    second: float
    interval: Interval
    p_bootstrap: float
    p_randomisation: float

    @property
    def difference(self) -> float:
        """The score of B minus that of A."""
        return self.second - self.first


@dataclass(frozen=True)
class Comparison:
    """The scores of two systems, with tests of their differences.

    Attributes:
        scores: by name.
        names: of systems A and B, for the note below the table.
        images: their number.
        samples: the number of bootstrap samples.
        trials: the number of trials of the randomisation.
        seed: of both.
    """

    scores: Mapping[str, Compared]
    names: tuple[str, str]
    images: int
    samples: int
    trials: int
    seed: int

    @classmethod
    @stage("comparing the systems")
    def of(
        cls,
        first: Sequence[Scores],
        second: Sequence[Scores],
        names: tuple[str, str] = ("A", "B"),
        samples: int = RESAMPLES,
        trials: int = TRIALS,
        seed: int = 0,
        block: int = BLOCK,
    ) -> "Comparison":
        """Compare two systems by the same metrics.

        All scores use the same samples and trials.

        Args:
            first: the scores of system A by each metric.
            second: those of system B, in the same order, of the same images in the same order.
            names: of the systems.
            samples: number of bootstrap samples.
            trials: number of trials of the randomisation.
            seed: of samples and trials.
            block: limits the counts in memory and does not affect the results.
        """
        pairs = list(zip(first, second, strict=True))
        images = len(next(values for each in first for values in each.images.values()))
        resampled: dict[str, list[NDArray[np.float64]]] = defaultdict(list)
        for counts in resamples(images, seed, block, samples):
            for one, other in pairs:
                theirs = other.resampled(counts)
                for name, values in one.resampled(counts).items():
                    resampled[name].append(theirs[name] - values)
        swapped: dict[str, list[NDArray[np.float64]]] = defaultdict(list)
        for swaps in _swaps(images, trials, seed, block):
            for one, other in pairs:
                for name, values in one.differences_when_swapped(other, swaps).items():
                    swapped[name].append(values)
        found = {}
        for one, other in pairs:
            for name in one.images:
                own, its = one.corpus[name], other.corpus[name]
                drawn = np.concatenate(resampled[name])
                found[name] = Compared(
                    own,
                    its,
                    percentile_interval(drawn),
                    bootstrap_p(its - own, drawn),
                    randomisation_p(its - own, np.concatenate(swapped[name])),
                )
        return cls(found, names, images, samples, trials, seed)

    def table(self, form: Format = "text") -> str:
        """The scores with their differences; as CSV in full precision, otherwise with a note."""
        if form == "csv":
            text = io.StringIO()
            writer = csv.writer(text, lineterminator="\n")
            writer.writerow(["score", "A", "B", "difference", "low", "high", *P_VALUES])
            for name, (first, second, interval, *p_values) in self.scores.items():
                writer.writerow([name, first, second, second - first, *interval, *p_values])
            return text.getvalue().rstrip("\n")
        columns = ("", "A", "B", "B - A", f"{LEVEL * 100:.0f} % interval", *P_VALUES)
        rows = [
            (
                name,
                f"{each.first:.4f}",
                f"{each.second:.4f}",
                f"{each.difference:+.4f}",
                "{:+.4f} to {:+.4f}".format(*each.interval),
                f"{each.p_bootstrap:.4f}",
                f"{each.p_randomisation:.4f}",
            )
            for name, each in self.scores.items()
        ]
        a, b = map(printable, self.names)
        note = (
            f"A: {a}; B: {b}; {self.images} images; {self.samples} bootstrap samples, "
            f"{self.trials} randomisation trials, seed {self.seed}"
        )
        if form == "text":
            return f"{aligned([columns, *rows])}\n{note}"
        rule = ("---", *["--:"] * (len(columns) - 1))
        lines = [f"| {' | '.join(cells)} |" for cells in (columns, rule, *rows)]
        return "\n".join([*lines, "", note])


def bootstrap_p(difference: float, resampled: NDArray[np.float64]) -> float:
    """The p-value of a difference by the paired bootstrap, as sacreBLEU and Moses compute it.

    The absolute differences of the samples, shifted to a mean of 0, are the distribution under the
    null hypothesis. p is the share that is at least the absolute difference; one more sample counts
    as extreme. For clear differences this is half of a two-sided p-value, since only samples on one
    side can be extreme. Unlike sacreBLEU's, ties are extreme: equal systems have p = 1.

    Args:
        difference: of the corpus scores.
        resampled: the differences of the bootstrap samples, (samples,).
    """
    distances = np.abs(resampled)
    extreme = distances - distances.mean() >= abs(difference) - ROUNDING
    return float(extreme.sum() + 1) / (len(extreme) + 1)


def randomisation_p(difference: float, swapped: NDArray[np.float64]) -> float:
    """The two-sided p-value of a difference by approximate randomisation.

    p is the share of trials with at least the absolute difference, where the observed one counts
    as a trial (Riezler and Maxwell 2005, figure 1).

    Args:
        difference: of the corpus scores.
        swapped: the differences after random swaps, (trials,).
    """
    extreme = np.abs(swapped) >= abs(difference) - ROUNDING
    return float(extreme.sum() + 1) / (len(extreme) + 1)


def _swaps(images: int, trials: int, seed: int, block: int) -> Iterator[NDArray[np.float64]]:
    """Ones for images whose captions a trial swaps, half of them on average; (T, images) each."""
    rng = np.random.default_rng(seed)
    rows = max(1, block // images)
    for start in range(0, trials, rows):
        yield (rng.random((min(rows, trials - start), images)) < 0.5).astype(float)
