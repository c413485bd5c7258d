"""What self-critical training rewards."""

from collections.abc import Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from captioning.metrics.bleu import bleu_scores
from captioning.metrics.cider import cider_scores
from captioning.metrics.frequencies import DocumentFrequencies
from captioning.metrics.scores import Words


class Reward:
    """CIDEr-D plus a share of sentence BLEU-4 of sampled captions against their references.

    Shapes: B images, N samples per image.

    Args:
        frequencies: in how many images of the training data n-grams occur.
        bleu: what BLEU-4, of each sample alone, is multiplied by.
    """

    def __init__(self, frequencies: DocumentFrequencies, bleu: float = 0.0) -> None:
        self.frequencies = frequencies
        self.bleu = bleu

    def __call__(
        self, samples: Sequence[Sequence[Words]], references: Sequence[Sequence[Words]]
    ) -> NDArray[np.float64]:
        """The rewards, (B, N).

        Words and ids are equally welcome, if they are those of the frequencies. A caption's end is
        rewarded where samples and references have it as a word.

        Args:
            samples: for each image the words of its N samples.
            references: for each image the words of its references.

        Raises:
            ValueError: there are no samples, or an image has no reference.
        """
        candidates = list(chain.from_iterable(samples))
        written = [several for its, several in zip(samples, references, strict=True) for _ in its]
        rewards = cider_scores(candidates, written, self.frequencies).images["CIDEr"]
        if self.bleu:
            rewards = rewards + self.bleu * bleu_scores(candidates, written).images["BLEU-4"]
        return rewards.reshape(len(samples), -1)
