"""How far scores would move with other images: percentile intervals of the bootstrap.

Efron and Tibshirani, "An Introduction to the Bootstrap", 1993, section 13.3.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from captioning.metrics.scores import Scores
from captioning.progress_bar import ProgressBar

RESAMPLES = 1000
LEVEL = 0.95
BLOCK = 4_000_000  # counts in memory at a time, 32 MB


class Interval(NamedTuple):
    """Where a score lies with a probability of `LEVEL`."""

    low: float
    high: float


def intervals(
    scores: Sequence[Scores], images: int, seed: int = 0, block: int = BLOCK
) -> dict[str, Interval]:
    """The interval of every corpus score, were the images drawn again.

    All scores see the same resamples, so that their intervals can be compared.

    Args:
        scores: of the same images in the same order.
        images: how many they are.
        seed: of the resamples.
        block: counts in memory at a time; it changes no result.

    Returns:
        For each name its `LEVEL` percentile interval over `RESAMPLES` resamples.
    """
    drawn: dict[str, list[NDArray[np.float64]]] = defaultdict(list)
    with ProgressBar("intervals of the scores", "resamples", total=RESAMPLES) as bar:
        for counts in resamples(images, seed, block):
            for each in scores:
                for name, values in each.resampled(counts).items():
                    drawn[name].append(values)
            bar.update(len(counts))
    tail = 100 * (1 - LEVEL) / 2
    return {
        name: Interval(*np.percentile(np.concatenate(blocks), (tail, 100 - tail)).tolist())
        for name, blocks in drawn.items()
    }


def resamples(images: int, seed: int = 0, block: int = BLOCK) -> Iterator[NDArray[np.int64]]:
    """How often each image is drawn in each of `RESAMPLES` resamples, (R, images) a block."""
    rng = np.random.default_rng(seed)
    share = np.full(images, 1 / images)
    rows = max(1, block // images)
    for start in range(0, RESAMPLES, rows):
        yield rng.multinomial(images, share, size=min(rows, RESAMPLES - start))
