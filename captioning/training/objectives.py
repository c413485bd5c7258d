"""Objectives: the loss that a training step minimises, and the paper's.

Shapes: B images, N captions per image, S tokens with BOS, T = S - 1 words, L regions, D annotation
width.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from jaxtyping import Float, Int
from torch import Tensor

from captioning.data.dataset import Batch
from captioning.data.preprocessing import Preprocessing
from captioning.data.records import Record
from captioning.data.vocabulary import PAD, Vocabulary
from captioning.kernels import caption_cross_entropy
from captioning.models import Decoder, Encoder, Model
from captioning.models.decoder import Memory
from captioning.models.losses import doubly_stochastic_penalty


class Loss(NamedTuple):
    """The loss of a batch."""

    total: Float[Tensor, ""]  # summed over the batch
    divisor: Tensor  # of the total, such as the number of words; averaged over processes
    metrics: Mapping[str, float | Tensor]  # further values to log, by name


class Objective(ABC):
    """Computes the loss of a batch.

    Attributes:
        records: the photos with the training captions; set by `prepare`, like the other attributes.
        vocabulary: the words.
        preprocessing: how a photo becomes an image.
        signature: how rewards are computed, as SacreEOS writes it; empty without rewards.
    """

    signature = ""

    def check(self, model: Model) -> None:  # noqa: B027 - most objectives train any model
        """Raise InputError if the model is unsuitable; called before any photo is read."""

    def prepare(
        self, records: Sequence[Record], vocabulary: Vocabulary, preprocessing: Preprocessing
    ) -> None:
        """Receive the data set before photos are encoded; InputError if it is unsuitable."""
        self.records, self.vocabulary, self.preprocessing = records, vocabulary, preprocessing

    @abstractmethod
    def __call__(self, model: Model, annotations: Float[Tensor, "B L D"], batch: Batch) -> Loss:
        """The loss of a batch, from the encoder's annotation vectors of its images.

        The model has fast kernels, unless they are off.
        """


def grid_of(encoder: Encoder, size: int, annotations: Float[Tensor, "B L D"]) -> tuple[int, int]:
    """Rows and columns of a batch's regions, which may be random squares of cached features."""
    rows, columns = encoder.grid(size, size)
    region_count = annotations.shape[1]
    if rows * columns == region_count:
        return rows, columns
    side = math.isqrt(region_count)
    return side, side


@dataclass(eq=False)
class CrossEntropy(Objective):
    """Cross-entropy with the doubly stochastic penalty (Xu et al. 2015, eq. 14).

    Both are divided by the number of words: their proportion is the paper's, and losses of batches
    with different lengths can be compared.

    Args:
        label_smoothing: share of a word's probability spread over the vocabulary.
        attention_penalty: lambda of eq. 14, in the paper's proportion.
    """

    label_smoothing: float = 0.1
    attention_penalty: float = 1.0

    def __call__(self, model: Model, annotations: Float[Tensor, "B L D"], batch: Batch) -> Loss:
        return self.of_words(model.decoder, model.remember(annotations), batch.tokens)[0]

    def of_words(
        self, decoder: Decoder, memory: Memory, tokens: Int[Tensor, "B N S"]
    ) -> tuple[Loss, Float[Tensor, "B N T L"]]:
        """The loss of the words after BOS, and the attention before each of them."""
        total, weights = caption_cross_entropy(decoder, memory, tokens, self.label_smoothing)
        mask = tokens[..., 1:] != PAD
        if self.attention_penalty:
            total = total + self.attention_penalty * doubly_stochastic_penalty(weights, mask)
        return Loss(total, mask.sum(), {}), weights
