"""Objectives: the loss that a training step minimises, and the paper's.

Shapes: B images, N captions per image, S tokens with BOS, T = S - 1 words, L regions, D annotation
width.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from jaxtyping import Bool, Float, Int
from torch import Tensor

from captioning.captioner import Captioner
from captioning.data.dataset import Batch
from captioning.data.records import Record
from captioning.data.vocabulary import PAD, Vocabulary
from captioning.models.decoder import Memory
from captioning.models.losses import doubly_stochastic_penalty
from captioning.numbers import Checked, Importance, Share, ShareBelowOne
from captioning.training.consensus import Consensus


class Loss(NamedTuple):
    """The loss of a batch.

    Attributes:
        total: summed over the batch.
        divisor: what to divide it by: the number of words, averaged over processes.
        figures: further values to log, by name.
    """

    total: Float[Tensor, ""]
    divisor: Tensor
    figures: dict[str, float | Tensor]


class WordLoss(NamedTuple):
    """The loss of the words of a batch.

    Attributes:
        total: summed over the words, each times the weight of its caption.
        number: of words, weighted in the same way.
        weights: the attention before each word.
        real: False at PAD.
    """

    total: Float[Tensor, ""]
    number: Tensor
    weights: Float[Tensor, "B N T L"]
    real: Bool[Tensor, "B N T"]


class Objective(Checked, ABC):
    """Computes the loss of a batch.

    Attributes:
        needs_seen: whether batches must say which part of its photo each image shows.
    """

    needs_seen = False

    @abstractmethod
    def prepare(self, records: Sequence[Record]) -> None:
        """Called with the training captions before the first step."""

    @abstractmethod
    def __call__(
        self, captioner: Captioner, annotations: Float[Tensor, "B L D"], batch: Batch
    ) -> Loss:
        """The loss of a batch.

        Args:
            captioner: the model.
            annotations: of the batch's images.
            batch: the images' captions and records.
        """


def grid_of(captioner: Captioner, annotations: Float[Tensor, "B L D"]) -> tuple[int, int]:
    """Rows and columns of a batch's regions, which may be random squares of cached features."""
    size, regions = captioner.preprocessing.size, annotations.shape[1]
    whole = captioner.model.encoder.grid(size, size)
    side = math.isqrt(regions)
    return whole if whole[0] * whole[1] == regions else (side, side)


class CrossEntropy(Objective):
    """Words given all before them, with the doubly stochastic penalty (Xu et al. 2015, eq. 14).

    The paper adds the penalty to a caption's whole log-likelihood; divided by the number of words,
    captions keep that proportion, and losses of batches of other lengths can be compared.

    Args:
        label_smoothing: share of a word's probability spread over the vocabulary.
        attention_penalty: lambda of eq. 14, in the paper's proportion.
        consensus: how much the weight of a caption depends on its `Consensus` with the photo's
            other captions; at zero all weigh the same.
    """

    def __init__(
        self,
        label_smoothing: ShareBelowOne = 0.1,
        attention_penalty: Importance = 1.0,
        consensus: Share = 0.0,
    ) -> None:
        self.label_smoothing = label_smoothing
        self.attention_penalty = attention_penalty
        self.consensus = consensus
        self._records: Sequence[Record] = ()
        self._consensus: Consensus | None = None

    def prepare(self, records: Sequence[Record]) -> None:
        """Keep the captions for `consensus`."""
        self._records = records

    def __call__(
        self, captioner: Captioner, annotations: Float[Tensor, "B L D"], batch: Batch
    ) -> Loss:
        """The loss of a batch, in nats."""
        memory = captioner.fast.remember(annotations)
        words = self.of_words(captioner, memory, batch.tokens)
        return Loss(words.total, words.number, {})

    def of_words(
        self, captioner: Captioner, memory: Memory, tokens: Int[Tensor, "B N S"]
    ) -> WordLoss:
        """The loss of the words after BOS.

        Args:
            captioner: the model.
            memory: of the images.
            tokens: the captions.
        """
        caption_weights = self._caption_weights(captioner.vocabulary, tokens)
        total, weights = captioner.fast.decoder.cross_entropy(
            memory, tokens, self.label_smoothing, caption_weights
        )
        real = tokens[..., 1:] != PAD
        if self.attention_penalty:
            total = total + self.attention_penalty * doubly_stochastic_penalty(weights, real)
        words = real.sum(dim=2)
        number = (words if caption_weights is None else words * caption_weights).sum()
        return WordLoss(total, number, weights, real)

    def _caption_weights(
        self, vocabulary: Vocabulary, tokens: Int[Tensor, "B N S"]
    ) -> Float[Tensor, "B N"] | None:
        if not self.consensus:
            return None
        if self._consensus is None:
            self._consensus = Consensus(self._records, vocabulary)
        return 1 + self.consensus * (self._consensus(tokens) - 1)
