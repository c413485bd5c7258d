"""Fit the chances of reviews to right and wrong captions, and measure how well they are told apart.

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
from captioning.captioner.caption import rounded
from captioning.captioner.decoded_batch import encode_batch
from captioning.captioner.photo_stream import StreamedPhoto
from captioning.captioner.review import ReviewFeatures
from captioning.data.records import Record
from captioning.errors import PhotoError, raise_errors
from captioning.evaluation.calibration_fit import logistic_regression
from captioning.evaluation.captions import photos_of
from captioning.evaluation.review_examples import Example, review_examples
from captioning.progress_bar import ProgressBar

MAX_PHOTOS = 500
"""The most photos of a fit, whose annotation vectors are kept in memory."""

BATCH_SIZE = 16
"""Photos per batch."""

FALSE_ALARMS = 0.05
"""Share of right captions, or words, that a threshold may call wrong."""


class CaptionFeatures(NamedTuple):
    """`WORD_FEATURES` of each word of a caption, and its `CAPTION_FEATURES`."""

    words: Float[np.ndarray, "T S"]
    caption: Float[np.ndarray, " S"]


@dataclass(frozen=True, eq=False)
class Judgements:
    """Features of right and wrong captions, or of right and wrong words.

    Attributes:
        right: of right ones.
        wrong: of wrong ones.
    """

    right: Float[np.ndarray, "_ S"]
    wrong: Float[np.ndarray, "_ S"]

    @property
    def targets(self) -> Bool[np.ndarray, " _"]:
        """Whether each is right, the right ones first."""
        return np.arange(len(self.right) + len(self.wrong)) < len(self.right)

    def chances(
        self, names: Sequence[str], weights: Mapping[str, float]
    ) -> Float[np.ndarray, " _"]:
        """Return the chance of each by a regression, the right ones first."""
        features = np.concatenate([self.right, self.wrong])
        chances: Float[np.ndarray, " _"] = expit(
            features @ [weights[name] for name in names] + weights[BIAS]
        )
        return chances

    def fit(self, names: Sequence[str], start: Mapping[str, float]) -> dict[str, float]:
        """Fit the weights of a regression, shrunk towards a start."""
        features = np.concatenate([self.right, self.wrong])
        means, scales = features.mean(axis=0), np.maximum(features.std(axis=0), 1e-6)
        start_weights = np.array([start[name] for name in names])
        weights, bias = logistic_regression(
            (features - means) / scales,
            self.targets,
            example_weights=np.where(self.targets, 1 / len(self.right), 1 / len(self.wrong)),
            start_weights=start_weights * scales,
            start_bias=start[BIAS] + float(means @ start_weights),
            photo_count=len(self.right),
            bounds=[(None, None)] * len(names),
        )
        weights = weights / scales
        return dict(zip(names, weights.tolist(), strict=True)) | {
            BIAS: bias - float(means @ weights)
        }


def separation(
    right: Float[np.ndarray, " _"], wrong: Float[np.ndarray, " _"]
) -> tuple[float, float]:
    """Return how well scores tell right from wrong.

    Returns:
        the area under the ROC curve, and the share of wrong ones below the threshold that
        `FALSE_ALARMS` of the right ones are below.
    """
    area = mannwhitneyu(right, wrong).statistic / (len(right) * len(wrong))
    threshold = np.quantile(right, FALSE_ALARMS)
    return float(area), float((wrong < threshold).mean())


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
    prior: Sequence[float],
    captions: Sequence[Sequence[Sequence[str]]],
) -> list[list[CaptionFeatures]]:
    """Compute the features of each caption of photos.

    Args:
        captioner: the model.
        vectors: `memory_vectors` of the photos.
        prior: `ReviewCalibration.prior`.
        captions: the words of each caption of each photo.
    """
    features: list[list[CaptionFeatures]] = []
    for start in range(0, len(captions), BATCH_SIZE):
        batch = captions[start : start + BATCH_SIZE]
        batch_vectors = vectors[start : start + BATCH_SIZE]
        batch_features = ReviewFeatures.of(
            captioner.network, captioner.vocabulary, prior, batch_vectors, batch
        )
        words, whole = batch_features.words.cpu().numpy(), batch_features.captions.cpu().numpy()
        for image, photo_captions in enumerate(batch):
            ranks = range(len(photo_captions))
            features.append([CaptionFeatures(words[image, n], whole[image, n]) for n in ranks])
    return features


def judgements(
    examples: Sequence[Example], features: Sequence[Sequence[CaptionFeatures]]
) -> tuple[Judgements, Judgements]:
    """Return the judgements of captions of other photos, and of wrong nouns.

    Args:
        examples: the captions.
        features: of the captions of each example, in the order of `Example.captions`.
    """
    captions: dict[bool, list[Any]] = {True: [], False: []}
    nouns: dict[bool, list[Any]] = {True: [], False: []}
    for example, (right, other, *wrong) in zip(examples, features, strict=True):
        captions[True].append(right.caption)
        captions[False].append(other.caption)
        if example.wrong_noun is None:
            continue
        right_noun = right.words[example.wrong_noun.right_place]
        if right_noun.any():  # it is in the vocabulary
            nouns[True].append(right_noun)
            nouns[False].append(wrong[0].words[example.wrong_noun.place])
    caption_shape, noun_shape = (-1, len(CAPTION_FEATURES)), (-1, len(WORD_FEATURES))
    return (
        Judgements(*(np.reshape(captions[right], caption_shape) for right in (True, False))),
        Judgements(*(np.reshape(nouns[right], noun_shape) for right in (True, False))),
    )


def fit_review(
    captioner: Captioner,
    records: Sequence[Record],
    start: ReviewCalibration | None = None,
    features: str | Path | None = None,
) -> ReviewCalibration | None:
    """Fit the chances of reviews, and compute the prior.

    Args:
        captioner: the model.
        records: photos with right captions, of which at most `MAX_PHOTOS` are taken.
        start: the calibration to shrink towards; by default the photo model's.
        features: a folder of cached annotations of the photos, to use instead of them.

    Returns:
        the calibration; the start if no two photos have captions of the same length.

    Raises:
        PhotoError: a photo cannot be read.
    """
    step = -(-len(records) // MAX_PHOTOS)
    examples = review_examples(records[::step], captioner.vocabulary)
    if not examples:
        return start
    photos = photos_of(captioner, [example.record for example in examples], features)
    vectors = memory_vectors(captioner, photos, len(examples))
    prior = [rounded(number) for number in vectors.mean(dim=(0, 1)).tolist()]
    captions = [example.captions for example in examples]
    judged_captions, judged_nouns = judgements(
        examples, caption_features(captioner, vectors, prior, captions)
    )
    start = start or ReviewCalibration(prior)
    word_weights = start.word_weights
    if len(judged_nouns.right):
        word_weights = judged_nouns.fit(WORD_FEATURES, word_weights)
    return ReviewCalibration(
        prior=prior,
        word_weights=word_weights,
        caption_weights=judged_captions.fit(CAPTION_FEATURES, start.caption_weights),
    )
