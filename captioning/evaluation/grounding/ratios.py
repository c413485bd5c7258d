"""Scores of a corpus that are sums over its images divided by sums over its images."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from captioning.metrics.scores import Scores

Pair = tuple[NDArray[np.float64], NDArray[np.float64]]
"""What is divided and what divides it, each (images,)."""


@dataclass(frozen=True)
class Ratios(Scores):
    """Ratios of sums, such as means over words of which images have different numbers.

    Attributes:
        pairs: by name, what is divided and what divides it.
    """

    pairs: Mapping[str, Pair]

    @classmethod
    def of_pairs(cls, pairs: Mapping[str, Pair]) -> "Ratios":
        """The ratios that are defined: those whose divisor is not zero in all images."""
        known = {name: pair for name, pair in pairs.items() if pair[1].any()}
        return cls(
            {name: float(top.sum() / bottom.sum()) for name, (top, bottom) in known.items()},
            {name: _divided(top, bottom) for name, (top, bottom) in known.items()},
            known,
        )

    def resampled(self, counts: NDArray[np.integer]) -> dict[str, NDArray[np.float64]]:
        """The ratios of corpora that are drawn from the images.

        Args:
            counts: (R, images), how often each of R corpora has each image.

        Returns:
            For every name the ratios of the corpora, (R,); NaN where one is not defined.
        """
        return {
            name: _divided(counts @ top, counts @ bottom)
            for name, (top, bottom) in self.pairs.items()
        }


def _divided(top: NDArray[np.float64], bottom: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.divide(top, bottom, out=np.full(top.shape, np.nan), where=bottom != 0)
