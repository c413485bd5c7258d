"""Objectives: the loss that a training step minimises, and the paper's.

Shapes: B images, N captions per image, S tokens with BOS, T = S - 1 words, L regions, D annotation
width.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from captioning.data.dataset import Batch
from captioning.data.preprocessing import Preprocessing
from captioning.data.records import Record
from captioning.data.vocabulary import EOS, PAD, SPECIAL, Vocabulary
from captioning.kernels import caption_cross_entropy
from captioning.metrics.cider import DocumentFrequencies, cider_scores
from captioning.metrics.scores import Words
from captioning.models import Decoder, Encoder, Model
from captioning.models.decoder import Memory
from captioning.models.losses import doubly_stochastic_penalty


class Loss(NamedTuple):
    """The loss of a batch."""

    total: Float[Tensor, ""]  # summed over the batch
    divisor: Tensor  # what to divide it by, such as the number of words; averaged over processes
    figures: Mapping[str, float | Tensor]  # further values to log, by name


class Objective(ABC):
    """Computes the loss of a batch.

    Attributes:
        records: the photos with the training captions; like the others set by `prepare`.
        vocabulary: the words.
        preprocessing: how a photo becomes an image.
    """

    def check(self, model: Model) -> None:  # noqa: B027 - most objectives train any model
        """Called with the model before any photo is read; InputError if it is unsuitable."""

    def prepare(
        self, records: Sequence[Record], vocabulary: Vocabulary, preprocessing: Preprocessing
    ) -> None:
        """Called before photos are encoded; InputError if the data set is unsuitable."""
        self.records, self.vocabulary, self.preprocessing = records, vocabulary, preprocessing

    @abstractmethod
    def __call__(self, model: Model, annotations: Float[Tensor, "B L D"], batch: Batch) -> Loss:
        """The loss of a batch, from the encoder's annotation vectors of its images.

        The model has fast kernels, unless they are off.
        """


def grid_of(encoder: Encoder, size: int, annotations: Float[Tensor, "B L D"]) -> tuple[int, int]:
    """Rows and columns of a batch's regions, which may be random squares of cached features."""
    rows, columns = encoder.grid(size, size)
    regions = annotations.shape[1]
    return (rows, columns) if rows * columns == regions else (math.isqrt(regions),) * 2


class Consensus:
    """Weights of captions by CIDEr-D against the other captions of their photo.

    A model that may say one sentence does best to say what most people would (Phan et al. 2017,
    "Consensus-based Sequence Training for Video Captioning"). The end of a caption is a word;
    unknown words match nothing. `records` define how rare an n-gram is.
    """

    def __init__(self, records: Sequence[Record], vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        captions = [
            [self._words(vocabulary.encode(caption)) for caption in record.captions]
            for record in records
        ]
        self._frequencies = DocumentFrequencies.of(captions)

    def __call__(self, tokens: Int[Tensor, "B N T"]) -> Float[Tensor, "B N"]:
        """Each caption's score divided by the mean of its photo, one if that is 0; zero for PAD."""
        real = tokens.any(dim=2)
        captions = [[self._words(row) for row in rows if any(row)] for rows in tokens.tolist()]
        ones = [caption for its in captions for caption in its]
        others = [its[:n] + its[n + 1 :] or its for its in captions for n in range(len(its))]
        scores = cider_scores(ones, others, self._frequencies).images["CIDEr"]
        of_each = torch.zeros(real.shape, device=tokens.device)
        of_each[real] = torch.from_numpy(scores).to(of_each)
        mean = of_each.sum(dim=1, keepdim=True) / real.sum(dim=1, keepdim=True)
        return torch.where(mean > 0, of_each / mean, real.to(of_each))

    def _words(self, row: Sequence[int]) -> Words:
        return (*self.vocabulary.decode(row), SPECIAL[EOS])


@dataclass(eq=False)
class CrossEntropy(Objective):
    """Words given all before them, with the doubly stochastic penalty (Xu et al. 2015, eq. 14).

    Both are divided by the number of words: their proportion is the paper's, and losses of batches
    of other lengths can be compared.

    Args:
        label_smoothing: share of a word's probability spread over the vocabulary.
        attention_penalty: lambda of eq. 14, in the paper's proportion.
        consensus: how much the weight of a caption depends on its `Consensus` with the photo's
            other captions; at zero all weigh the same.
    """

    label_smoothing: float = 0.1
    attention_penalty: float = 1.0
    consensus: float = field(default=0.0, kw_only=True)

    @cached_property
    def _consensus(self) -> Consensus:
        return Consensus(self.records, self.vocabulary)

    def __call__(self, model: Model, annotations: Float[Tensor, "B L D"], batch: Batch) -> Loss:
        return self.of_words(model.decoder, model.remember(annotations), batch.tokens)[0]

    def of_words(
        self, decoder: Decoder, memory: Memory, tokens: Int[Tensor, "B N S"]
    ) -> tuple[Loss, Float[Tensor, "B N T L"]]:
        """The loss of the words after BOS, and the attention before each of them."""
        caption_weights = None
        if self.consensus:
            caption_weights = 1 + self.consensus * (self._consensus(tokens) - 1)
        smoothing = self.label_smoothing
        total, weights = caption_cross_entropy(decoder, memory, tokens, smoothing, caption_weights)
        real = tokens[..., 1:] != PAD
        if self.attention_penalty:
            total = total + self.attention_penalty * doubly_stochastic_penalty(weights, real)
        words = real.sum(dim=2)
        number = (words if caption_weights is None else words * caption_weights).sum()
        return Loss(total, number, {}), weights
