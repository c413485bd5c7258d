"""Reviews of captions: does a photo bear out a caption, and each of its words?

A word is borne out if the model expects it of this photo more than of no photo in particular, and
more than the other words that it could be.

Shapes: B images, T words, L regions, A adapted width, V vocabulary, S features.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.cluster.vq import kmeans, vq
from torch import Tensor

from captioning.captioner.calibration import (
    BIAS,
    CAPTION_FEATURES,
    WORD_FEATURES,
    ReviewCalibration,
    rounded,
)
from captioning.captioner.decoded_batch import encode_batch
from captioning.captioner.inference_network import InferenceNetwork
from captioning.captioner.photo_stream import StreamedPhoto, photo_batches
from captioning.captioner.review_features import ReviewFeatures, content_alternatives
from captioning.data.preprocessing import Photo, Preprocessing
from captioning.data.tokenizers import tokenizer
from captioning.data.tokens import FUNCTION_WORDS
from captioning.data.vocabulary import UNK, Vocabulary
from captioning.errors import InputError, PhotoError, raise_errors

PRIOR_PHOTOS = 24
"""The most photos from which a model without a calibration of reviews takes its priors."""

PRIOR_COUNT = 16
"""The most priors. With 1, 4, 8 and 16 the log loss of the chance that captions of Flickr8k's
validation photos belong to their photos is 0.224, 0.221, 0.210 and 0.206."""

PHOTOS_PER_PRIOR = 4
"""Fewer photos make fewer priors: a group of one photo makes none."""


@dataclass(frozen=True)
class Review:
    """What a photo bears out of a caption.

    Attributes:
        words: the words of the caption.
        chances: of each word, the chance that the photo bears it out; None for words that cannot be
            judged: function words, and those that the model does not know.
        unknown: the words that the model does not know.
        doubtful: places of the words whose chance is below the least one that was asked for.
        belongs: the chance that the caption is of this photo and not of another one.
        alternatives: of each doubtful word, the words that the model would say in its place, the
            most probable first.
    """

    words: tuple[str, ...]
    chances: tuple[float | None, ...]
    unknown: tuple[str, ...]
    doubtful: tuple[int, ...]
    belongs: float
    alternatives: tuple[tuple[str, ...], ...]

    @property
    def right(self) -> float:
        """The chance that the caption is of this photo, and that its least likely word is right."""
        judged = [chance for chance in self.chances if chance is not None]
        return self.belongs * min(judged, default=1.0)

    def as_json(self) -> dict[str, object]:
        """Return the review as plain JSON values."""
        words: list[dict[str, object]] = []
        for word, chance in zip(self.words, self.chances, strict=True):
            words.append({"word": word, "chance": None if chance is None else rounded(chance)})
        for place, alternatives in zip(self.doubtful, self.alternatives, strict=True):
            words[place]["instead"] = list(alternatives)
        return {
            "right": rounded(self.right),
            "belongs": rounded(self.belongs),
            "unknown": list(self.unknown),
            "words": words,
        }


@torch.no_grad()
def default_review(
    network: InferenceNetwork, preprocessing: Preprocessing, photos: Sequence[Photo]
) -> ReviewCalibration:
    """Return the photo model's calibration, with priors of the first photos.

    Raises:
        PhotoError: none of them can be read.
        InputError: one of them can be read, which would be its only prior.
    """
    batches = photo_batches(photos[:PRIOR_PHOTOS], preprocessing, batch_size=PRIOR_PHOTOS)
    results = [result for batch in batches for result in batch]
    streamed_photos = [result for result in results if isinstance(result, StreamedPhoto)]
    if not streamed_photos:
        [*_] = raise_errors(results)
    if len(streamed_photos) < 2:
        raise InputError(
            "this model is not calibrated for reviews; see captioning calibrate, or review the "
            "captions of several photos that can be read"
        )
    vectors = encode_batch(network, streamed_photos).adapted
    return ReviewCalibration(review_priors(vectors))


def review_priors(vectors: Float[Tensor, "n L A"]) -> list[list[float]]:
    """Return the mean vectors of groups of photos that look alike, by k-means.

    A photo that is alone in its group makes no prior: its captions would be compared with
    themselves. A single photo makes one all the same.

    Args:
        vectors: the adapted annotation vectors of the photos.
    """
    photo_means = vectors.mean(dim=1).float().cpu().numpy()
    count = min(max(len(photo_means) // PHOTOS_PER_PRIOR, 1), PRIOR_COUNT)
    centres, _ = kmeans(photo_means, count, seed=0)
    groups, _ = vq(photo_means, centres)
    if len(photo_means) > 1:
        centres = centres[np.bincount(groups, minlength=len(centres)) > 1]
    return [[rounded(number) for number in centre] for centre in centres.tolist()]


@dataclass(frozen=True)
class Reviewer:
    """Reviews captions of batches of photos.

    Attributes:
        network: the model.
        vocabulary: its words.
        calibration: of its reviews.
        doubt: words with a smaller chance are doubtful.
        wrong_share: how many captions are expected to be wrong. A caption that is wrong belongs to
            another photo or, for the chances of its words, has one wrong word.
        judges_words: whether to judge words, which takes most of the time.
    """

    network: InferenceNetwork
    vocabulary: Vocabulary
    calibration: ReviewCalibration
    doubt: float = 0.5
    wrong_share: float = 0.5
    judges_words: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.wrong_share < 1:
            raise InputError(f"{self.wrong_share}: give a share of wrong captions between 0 and 1")

    @torch.no_grad()
    def review(
        self, photos: Sequence[StreamedPhoto | PhotoError], texts: Sequence[Sequence[str]]
    ) -> list[list[Review] | PhotoError]:
        """Return the reviews of each photo's captions, or why the photo cannot be read.

        Args:
            photos: a batch of a stream.
            texts: the captions of each photo of the stream.
        """
        streamed_photos = [photo for photo in photos if isinstance(photo, StreamedPhoto)]
        if not streamed_photos:
            return [photo for photo in photos if isinstance(photo, PhotoError)]
        vectors = encode_batch(self.network, streamed_photos).adapted
        captions = [texts[photo.number] for photo in streamed_photos]
        reviews = iter(self.review_vectors(vectors, captions))
        return [photo if isinstance(photo, PhotoError) else next(reviews) for photo in photos]

    @torch.no_grad()
    def review_vectors(
        self, vectors: Float[Tensor, "B L A"], texts: Sequence[Sequence[str]]
    ) -> list[list[Review]]:
        """Return the reviews of the captions of each photo.

        Args:
            vectors: the adapted annotation vectors of the photos.
            texts: the captions of each.
        """
        split = tokenizer(self.vocabulary.tokenizer)
        words = [[split(text) for text in captions] for captions in texts]
        if not all(caption_words for captions in words for caption_words in captions):
            raise InputError("a caption has no words; leave it out")
        calibration = self.calibration
        places = [
            (image, rank, place)
            for image, captions in enumerate(words)
            for rank, caption in enumerate(captions)
            for place in self._judged(caption)
        ]
        features = ReviewFeatures.of(
            self.network, self.vocabulary, calibration.priors, vectors, words, places
        )
        word_logits = _regression(features.words, WORD_FEATURES, calibration.word_weights)
        caption_logits = _regression(
            features.captions, CAPTION_FEATURES, calibration.caption_weights
        )
        reviews: list[list[Review]] = []
        for image, captions in enumerate(words):
            reviews.append([])
            for rank, caption in enumerate(captions):
                review = self._review(
                    caption,
                    features.tokens[image, rank],
                    features.logits[image, rank],
                    word_logits[image, rank].cpu(),
                    float(caption_logits[image, rank]),
                )
                reviews[-1].append(review)
        return reviews

    def _judged(self, words: Sequence[str]) -> list[int]:
        """Return the places of words that are judged."""
        if not self.judges_words:
            return []
        ids = self.vocabulary.ids(words)[1:-1]
        return [
            place
            for place, (word, token) in enumerate(zip(words, ids, strict=True))
            if token != UNK and word not in FUNCTION_WORDS
        ]

    def _review(
        self,
        words: Sequence[str],
        tokens: Int[Tensor, " T"],
        logits: Float[Tensor, "T V"],
        word_logits: Float[Tensor, " T"],
        caption_logit: float,
    ) -> Review:
        """Review a caption.

        Args:
            words: its words.
            tokens: their ids, up to EOS and then PAD.
            logits: the logits before each token.
            word_logits: log-odds that words are borne out, where half of them are.
            caption_logit: log-odds that the caption belongs to its photo, where half of them do.
        """
        ids, judged = self.vocabulary.ids(words)[1:-1], self._judged(words)
        wrong_words = self.wrong_share / max(len(judged), 1)
        chances: list[float | None] = [None] * len(words)
        for place in judged:
            chances[place] = _chance(float(word_logits[place]), wrong_words)
        doubtful = [place for place in judged if (chances[place] or 0.0) < self.doubt]
        substitutes = content_alternatives(logits[doubtful], tokens[doubtful], self.vocabulary)
        return Review(
            words=tuple(self.vocabulary.spellings.get(word, word) for word in words),
            chances=tuple(chances),
            unknown=tuple(word for word, token in zip(words, ids, strict=True) if token == UNK),
            doubtful=tuple(doubtful),
            belongs=_chance(caption_logit, self.wrong_share),
            alternatives=tuple(map(self.vocabulary.spelt, substitutes.tolist())),
        )


def _regression(
    features: Float[Tensor, "*B S"], names: Sequence[str], weights: Mapping[str, float]
) -> Float[Tensor, "*B"]:
    """Return the log-odds of a logistic regression."""
    return features @ features.new_tensor([weights[name] for name in names]) + weights[BIAS]


def _chance(logit: float, wrong_share: float) -> float:
    """Return the chance of these log-odds, which hold for half wrong, at another share of wrong."""
    logit += math.log((1 - wrong_share) / wrong_share)
    return (1 + math.tanh(logit / 2)) / 2
