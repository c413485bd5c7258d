"""The reward of self-critical training."""

from collections.abc import Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from captioning.metrics.bleu import bleu_scores
from captioning.metrics.cider import DocumentFrequencies, cider_scores
from captioning.metrics.scores import Words


class Reward:
    """CIDEr-D plus weighted sentence BLEU-4 of sampled captions.

    Shapes: B images, N samples per image.

    Args:
        frequencies: document frequencies of the training captions.
        bleu: the weight of BLEU-4.
    """

    def __init__(self, frequencies: DocumentFrequencies, bleu: float = 0.0) -> None:
        self.frequencies = frequencies
        self.bleu = bleu

    def __call__(
        self, samples: Sequence[Sequence[Words]], references: Sequence[Sequence[Words]]
    ) -> NDArray[np.float64]:
        """The rewards, (B, N), of each image's N samples by its references.

        Captions may be words or ids, but of the same kind as in the frequencies. If samples and
        references contain the end token, ending a caption is rewarded too.
        """
        candidates = list(chain.from_iterable(samples))
        written = [several for its, several in zip(samples, references, strict=True) for _ in its]
        rewards = cider_scores(candidates, written, self.frequencies).images["CIDEr"]
        if self.bleu:
            rewards = rewards + self.bleu * bleu_scores(candidates, written).images["BLEU-4"]
        return rewards.reshape(len(samples), -1)
