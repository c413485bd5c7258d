"""What a metric gives: scores of a corpus, of its images, and of resampled corpora."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Words: TypeAlias = Sequence[Hashable]
"""A caption: its words, or their ids."""


@dataclass(frozen=True)
class Scores:
    """The scores of captions, one per image, by one metric.

    Attributes:
        corpus: score of all images together, by name: "BLEU-1" to "BLEU-4", "ROUGE-L", "CIDEr".
        images: by the same names, the scores of the images in the order of the captions.
    """

    corpus: dict[str, float]
    images: dict[str, NDArray[np.float64]]

    @classmethod
    def of(cls, name: str, images: NDArray[np.float64]) -> "Scores":
        """The scores by a metric whose score of a corpus is the mean of its images."""
        return cls({name: float(images.mean())}, {name: images})

    def resampled(self, counts: NDArray[np.integer]) -> dict[str, NDArray[np.float64]]:
        """The scores of corpora that are drawn from the images.

        These are means of the images' scores, weighted by how often an image was drawn. So the
        document frequencies of CIDEr stay those of all images, whichever were drawn.

        Args:
            counts: (R, images), how often each of R corpora has each image; every corpus has one.

        Returns:
            For every name the scores of the corpora, (R,).
        """
        weights = counts / counts.sum(axis=1, keepdims=True)
        return {name: weights @ scores for name, scores in self.images.items()}


Scorer: TypeAlias = Callable[[Sequence[Sequence[str]], Sequence[Sequence[Sequence[str]]]], Scores]
"""Scores the words of one caption per image against the words of the image's references."""

PhotoScorer: TypeAlias = Callable[
    [Sequence[str], Sequence[Sequence[str]], Sequence[Hashable]], Scores
]
"""Scores captions against references, as they are written, and photos, by the images' ids."""


def check_pairs(candidates: Sequence[Words], references: Sequence[Sequence[Words]]) -> None:
    """Make sure that there is a caption and at least one reference for every image.

    Raises:
        ValueError: there are no captions, the two differ in length, or an image has no reference.
    """
    if not candidates:
        raise ValueError("there are no captions to score; caption at least one image")
    if len(candidates) != len(references):
        raise ValueError(
            f"{len(candidates)} captions but references for {len(references)} images; "
            "pass one caption per image"
        )
    for candidate, its_references in zip(candidates, references, strict=True):
        if not its_references:
            caption = " ".join(map(str, candidate))
            raise ValueError(f"the caption {caption!r} has no reference to score it by")
