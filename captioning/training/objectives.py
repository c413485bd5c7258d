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
    divisor: Tensor  # of the total, such as the number of words; averaged over processes
    metrics: Mapping[str, float | Tensor]  # further values to log, by name


class Objective(ABC):
    """Computes the loss of a batch.

    Attributes:
        records: the photos with the training captions; set by `prepare`, like the other attributes.
        vocabulary: the words.
        preprocessing: how a photo becomes an image.
    """

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


class Consensus:
    """Weights of captions by CIDEr-D against the other captions of their photo.

    Captions that agree with the others weigh more (Phan et al. 2017, "Consensus-based Sequence
    Training for Video Captioning"). The end of a caption counts as a word; unknown words match
    nothing.

    Args:
        records: the photos whose captions define the document frequencies of n-grams.
        vocabulary: the words.
    """

    def __init__(self, records: Sequence[Record], vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        captions = []
        for record in records:
            token_ids = map(vocabulary.encode, record.captions)
            captions.append([self._words(ids) for ids in token_ids])
        self._frequencies = DocumentFrequencies.of(captions)

    def __call__(self, tokens: Int[Tensor, "B N T"]) -> Float[Tensor, "B N"]:
        """Each caption's score divided by the mean of its photo, one if that is 0; zero for PAD."""
        is_caption = tokens.any(dim=2)
        candidates: list[Words] = []
        references: list[list[Words]] = []
        for rows in tokens.tolist():
            captions = [self._words(row) for row in rows if any(row)]
            for index, caption in enumerate(captions):
                candidates.append(caption)
                references.append(captions[:index] + captions[index + 1 :] or captions)
        scores = torch.zeros(is_caption.shape, device=tokens.device)
        caption_scores = cider_scores(candidates, references, self._frequencies).images["CIDEr"]
        scores[is_caption] = torch.from_numpy(caption_scores).to(scores)
        mean = scores.sum(dim=1, keepdim=True) / is_caption.sum(dim=1, keepdim=True)
        return torch.where(mean > 0, scores / mean, is_caption.to(scores))

    def _words(self, token_ids: Sequence[int]) -> Words:
        return (*self.vocabulary.decode(token_ids), SPECIAL[EOS])


@dataclass(eq=False)
class CrossEntropy(Objective):
    """Cross-entropy with the doubly stochastic penalty (Xu et al. 2015, eq. 14).

    Both are divided by the number of words: their proportion is the paper's, and losses of batches
    with different lengths can be compared.

    Args:
        label_smoothing: share of a word's probability spread over the vocabulary.
        attention_penalty: lambda of eq. 14, in the paper's proportion.
        consensus: how much the weight of a caption depends on its `Consensus` with the photo's
            other captions; with 0 all captions weigh the same.
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
        mask = tokens[..., 1:] != PAD
        if self.attention_penalty:
            total = total + self.attention_penalty * doubly_stochastic_penalty(weights, mask)
        word_counts = mask.sum(dim=2)
        if caption_weights is not None:
            word_counts = word_counts * caption_weights
        return Loss(total, word_counts.sum(), {}), weights
