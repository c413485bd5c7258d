"""Fit the chances of reviews to true and wrong captions, and measure how well they are told apart.

Shapes: n captions or words, S features.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from scipy.special import expit
from scipy.stats import mannwhitneyu
from torch import Tensor

from captioning.captioner import Captioner
from captioning.captioner.calibration import (
    BIAS,
    CAPTION_FEATURES,
    WORD_FEATURES,
    ReviewCalibration,
)
from captioning.captioner.decoded_batch import encode_batch
from captioning.captioner.photo_stream import StreamedPhoto
from captioning.captioner.review import review_priors
from captioning.captioner.review_features import ReviewFeatures
from captioning.data.records import Record
from captioning.errors import PhotoError, raise_errors
from captioning.evaluation.calibration_fit import logistic_regression
from captioning.evaluation.captions import photos_of
from captioning.evaluation.review_examples import Example, review_examples
from captioning.progress_bar import ProgressBar

MAX_FIT_PHOTOS = 500
"""The most photos of a fit, whose annotation vectors are kept in memory."""

FIT_BATCH_SIZE = 16
"""Photos per batch."""

FALSE_ALARMS = 0.05
"""Share of positives that a threshold may call negative."""


class CaptionFeatures(NamedTuple):
    """`WORD_FEATURES` of each word of a caption, and its `CAPTION_FEATURES`."""

    words: Float[np.ndarray, "T S"]
    caption: Float[np.ndarray, " S"]


@dataclass(frozen=True, eq=False)
class LabelledFeatures:
    """Features of captions, or of words, with and without fault.

    Attributes:
        positives: of those that the photo bears out.
        negatives: of those that it does not.
    """

    positives: Float[np.ndarray, "_ S"]
    negatives: Float[np.ndarray, "_ S"]

    @property
    def features(self) -> Float[np.ndarray, "n S"]:
        """All features, the positives first."""
        return np.concatenate([self.positives, self.negatives])

    @property
    def labels(self) -> Bool[np.ndarray, " n"]:
        """Whether each is a positive."""
        return np.arange(len(self.features)) < len(self.positives)

    def chances(
        self, names: Sequence[str], weights: Mapping[str, float]
    ) -> Float[np.ndarray, " n"]:
        """Return the chance of each by a regression, the positives first."""
        chances: Float[np.ndarray, " n"] = expit(
            self.features @ [weights[name] for name in names] + weights[BIAS]
        )
        return chances

    def fit(self, names: Sequence[str], start: Mapping[str, float]) -> dict[str, float]:
        """Fit the weights of a regression, shrunk towards a start."""
        features, labels = self.features, self.labels
        means, scales = features.mean(axis=0), np.maximum(features.std(axis=0), 1e-6)
        start_weights = np.array([start[name] for name in names])
        weights, bias = logistic_regression(
            (features - means) / scales,
            labels,
            example_weights=np.where(labels, 1 / len(self.positives), 1 / len(self.negatives)),
            start_weights=start_weights * scales,
            start_bias=start[BIAS] + float(means @ start_weights),
            photo_count=len(self.positives),
            bounds=[(None, None)] * len(names),
        )
        weights = weights / scales
        return dict(zip(names, weights.tolist(), strict=True)) | {
            BIAS: bias - float(means @ weights)
        }


def separation(
    positives: Float[np.ndarray, " _"], negatives: Float[np.ndarray, " _"]
) -> tuple[float, float]:
    """Return how well scores tell positives from negatives.

    Returns:
        the area under the ROC curve, and the share of negatives below the threshold that
        `FALSE_ALARMS` of the positives are below.
    """
    area = mannwhitneyu(positives, negatives).statistic / (len(positives) * len(negatives))
    threshold = np.quantile(positives, FALSE_ALARMS)
    return float(area), float((negatives < threshold).mean())


@torch.no_grad()
def memory_vectors(
    captioner: Captioner, photos: Iterable[Any], count: int
) -> Float[Tensor, "n L A"]:
    """Compute the adapted annotation vectors of this number of photos.

    Raises:
        PhotoError: a photo cannot be read.
    """

    def encode(batch: Sequence[StreamedPhoto | PhotoError]) -> Tensor:
        return encode_batch(captioner.network, [*raise_errors(batch)]).adapted

    vectors = []
    with ProgressBar("encoding", "photos", count) as bar:
        for adapted in captioner.batches(photos, encode):
            vectors.append(adapted)
            bar.update(len(adapted))
    return torch.cat(vectors)


def caption_features(
    captioner: Captioner,
    vectors: Float[Tensor, "n L A"],
    priors: Sequence[Sequence[float]],
    captions: Sequence[Sequence[Sequence[str]]],
    places: Sequence[Sequence[tuple[int, int]]] | None = None,
) -> list[list[CaptionFeatures]]:
    """Compute the features of each caption of photos.

    Args:
        captioner: the model.
        vectors: `memory_vectors` of the photos.
        priors: `ReviewCalibration.priors`.
        captions: the words of each caption of each photo.
        places: of each photo the caption and the place of each word to judge; None for none.
    """
    features: list[list[CaptionFeatures]] = []
    for start in range(0, len(captions), FIT_BATCH_SIZE):
        batch = captions[start : start + FIT_BATCH_SIZE]
        batch_vectors = vectors[start : start + FIT_BATCH_SIZE]
        batch_places = [
            (image, rank, place)
            for image, photo_places in enumerate((places or [])[start : start + FIT_BATCH_SIZE])
            for rank, place in photo_places
        ]
        batch_features = ReviewFeatures.of(
            captioner.network, captioner.vocabulary, priors, batch_vectors, batch, batch_places
        )
        words, whole = batch_features.words.cpu().numpy(), batch_features.captions.cpu().numpy()
        for image, photo_captions in enumerate(batch):
            ranks = range(len(photo_captions))
            features.append([CaptionFeatures(words[image, n], whole[image, n]) for n in ranks])
    return features


def labelled_features(
    examples: Sequence[Example], features: Sequence[Sequence[CaptionFeatures]]
) -> tuple[LabelledFeatures, LabelledFeatures]:
    """Return features of captions, whose negatives are of other photos, and of nouns.

    Args:
        examples: the captions.
        features: of the captions of each example, in the order of `Example.captions`.
    """
    captions, other_captions, nouns, wrong_nouns = [], [], [], []
    for example, (caption, other_caption, *wrong_caption) in zip(examples, features, strict=True):
        captions.append(caption.caption)
        other_captions.append(other_caption.caption)
        if example.wrong_noun is None:
            continue
        noun = caption.words[example.wrong_noun.true_place]
        if noun.any():  # it is in the vocabulary
            nouns.append(noun)
            wrong_nouns.append(wrong_caption[0].words[example.wrong_noun.place])
    noun_shape = -1, len(WORD_FEATURES)
    return (
        LabelledFeatures(np.array(captions), np.array(other_captions)),
        LabelledFeatures(np.reshape(nouns, noun_shape), np.reshape(wrong_nouns, noun_shape)),
    )


def fit_review(
    captioner: Captioner,
    records: Sequence[Record],
    start: ReviewCalibration | None = None,
    features: str | Path | None = None,
) -> ReviewCalibration | None:
    """Fit the chances of reviews, and compute the priors.

    Args:
        captioner: the model.
        records: photos with true captions, of which at most `MAX_FIT_PHOTOS` are taken.
        start: the calibration to shrink towards; by default the photo model's.
        features: a folder of cached annotations of the photos, to use instead of them.

    Returns:
        the calibration; the start if no two photos have captions of the same length.

    Raises:
        PhotoError: a photo cannot be read.
    """
    step = -(-len(records) // MAX_FIT_PHOTOS)
    examples = review_examples(records[::step], captioner.vocabulary)
    if not examples:
        return start
    photos = photos_of(captioner, [example.record for example in examples], features)
    vectors = memory_vectors(captioner, photos, len(examples))
    priors = review_priors(vectors)
    captions = [example.captions for example in examples]
    nouns = [example.nouns for example in examples]
    labelled_captions, labelled_nouns = labelled_features(
        examples, caption_features(captioner, vectors, priors, captions, nouns)
    )
    start = start or ReviewCalibration(priors)
    word_weights = start.word_weights
    if len(labelled_nouns.positives):
        word_weights = labelled_nouns.fit(WORD_FEATURES, word_weights)
    return ReviewCalibration(
        priors=priors,
        word_weights=word_weights,
        caption_weights=labelled_captions.fit(CAPTION_FEATURES, start.caption_weights),
    )
