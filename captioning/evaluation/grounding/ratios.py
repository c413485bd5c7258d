"""Corpus scores that are ratios of sums over images."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from captioning.metrics.scores import Scores

Pair = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Numerators and denominators, each (images,)."""


@dataclass(frozen=True)
class Ratios(Scores):
    """Ratios of sums, such as means over words when images have different numbers of words.

    Attributes:
        pairs: numerators and denominators by name.
    """

    pairs: Mapping[str, Pair]

    @classmethod
    def of_pairs(cls, pairs: Mapping[str, Pair]) -> "Ratios":
        """The defined ratios, whose denominator is not zero in all images."""
        known = {name: pair for name, pair in pairs.items() if pair[1].any()}
        return cls(
            {name: float(top.sum() / bottom.sum()) for name, (top, bottom) in known.items()},
            {name: _divided(top, bottom) for name, (top, bottom) in known.items()},
            known,
        )

    def resampled(self, counts: NDArray[np.integer]) -> dict[str, NDArray[np.float64]]:
        """The ratios of bootstrap resamples.

        Args:
            counts: (R, images), how often each of R resamples has each image.

        Returns:
            For every name the ratios of the resamples, (R,); NaN where undefined.
        """
        return {
            name: _divided(counts @ top, counts @ bottom)
            for name, (top, bottom) in self.pairs.items()
        }


def _divided(top: NDArray[np.float64], bottom: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.divide(top, bottom, out=np.full(top.shape, np.nan), where=bottom != 0)
