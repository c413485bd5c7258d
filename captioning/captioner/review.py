"""Reviews of captions: does a photo bear out a caption, and each of its words?

A word is borne out if the model expects it of this photo more than of no photo in particular.

Shapes: B images, N captions per image, T words, L regions, A adapted width, S features.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from captioning.captioner.calibration import (
    BIAS,
    CAPTION_FEATURES,
    WORD_FEATURES,
    ReviewCalibration,
    rounded,
)
from captioning.captioner.decoded_batch import encode_batch, token_log_probs
from captioning.captioner.inference_network import InferenceNetwork
from captioning.captioner.photo_stream import StreamedPhoto, photo_batches
from captioning.data.dataset import pad_captions
from captioning.data.preprocessing import Photo, Preprocessing
from captioning.data.tokenizers import tokenizer
from captioning.data.tokens import FUNCTION_WORDS
from captioning.data.vocabulary import EOS, PAD, UNK, Vocabulary
from captioning.errors import InputError, PhotoError, raise_errors
from captioning.search.search import generable_log_probs

ALTERNATIVES = 3
"""Alternatives to each doubtful word."""

PRIOR_PHOTOS = 24
"""Photos whose mean is the prior of a model without a calibration of reviews."""


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


@dataclass(frozen=True)
class ReviewFeatures:
    """Captions of a batch of photos, and the features of their reviews.

    Attributes:
        tokens: the captions, up to EOS and then PAD.
        logits: the logits before each token, given the photo.
        words: `WORD_FEATURES` of each token; 0 for tokens that the model does not know.
        captions: `CAPTION_FEATURES` of each caption.
    """

    tokens: Int[Tensor, "B N T"]
    logits: Float[Tensor, "B N T V"]
    words: Float[Tensor, "B N T S"]
    captions: Float[Tensor, "B N S"]

    @classmethod
    @torch.no_grad()
    def of(
        cls,
        network: InferenceNetwork,
        vocabulary: Vocabulary,
        prior: Sequence[float],
        vectors: Float[Tensor, "B L A"],
        captions: Sequence[Sequence[Sequence[str]]],
    ) -> "ReviewFeatures":
        """Compute the features.

        Args:
            network: the model.
            vocabulary: its words.
            prior: `ReviewCalibration.prior`.
            vectors: the adapted annotation vectors of the photos.
            captions: the words of each caption of each photo.
        """
        ids = [
            [torch.tensor(vocabulary.ids(words)[1:]) for words in photo_captions]
            for photo_captions in captions
        ]
        tokens = pad_captions(ids).to(network.device)
        logits, _ = network.teacher_forcing(network.remember(vectors), tokens)
        rows = tokens.flatten(0, 1)[None]  # without photos, all are captions of one image
        prior_memory = network.remember(vectors.new_tensor(prior)[None, None])
        blind_logits, _ = network.teacher_forcing(prior_memory, rows)
        blind_log_probs = token_log_probs(blind_logits, rows).view(tokens.shape)
        is_known = (tokens != PAD) & (tokens != UNK)
        words = torch.stack([token_log_probs(logits, tokens), blind_log_probs], dim=3)
        words = words.masked_fill(~is_known[..., None], 0.0)
        means = words.sum(dim=2) / is_known.sum(dim=2).clamp(min=1)[..., None]
        features = torch.stack([means[..., 0] - means[..., 1], means[..., 0]], dim=2)
        return cls(tokens, logits, words, features)


@torch.no_grad()
def default_review(
    network: InferenceNetwork, preprocessing: Preprocessing, photos: Sequence[Photo]
) -> ReviewCalibration:
    """Return the photo model's calibration, with the mean of the first photos as the prior.

    Raises:
        PhotoError: none of them can be read.
        InputError: there is one photo, which would be its own prior.
    """
    if len(photos) < 2:
        raise InputError(
            "this model is not calibrated for reviews; see captioning calibrate, or review the "
            "captions of several photos"
        )
    [batch] = photo_batches(photos[:PRIOR_PHOTOS], preprocessing, batch_size=PRIOR_PHOTOS)
    streamed_photos = [photo for photo in batch if isinstance(photo, StreamedPhoto)]
    if not streamed_photos:
        [*_] = raise_errors(batch)
    vectors = encode_batch(network, streamed_photos).adapted
    return ReviewCalibration(vectors.mean(dim=(0, 1)).tolist())


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
    """

    network: InferenceNetwork
    vocabulary: Vocabulary
    calibration: ReviewCalibration
    doubt: float = 0.5
    wrong_share: float = 0.5

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
        features = ReviewFeatures.of(
            self.network, self.vocabulary, calibration.prior, vectors, words
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
        is_unknown = [token == UNK for token in tokens[: len(words)].tolist()]
        judged = [
            place
            for place, word in enumerate(words)
            if not is_unknown[place] and word not in FUNCTION_WORDS
        ]
        wrong_words = self.wrong_share / max(len(judged), 1)
        chances: list[float | None] = [None] * len(words)
        for place in judged:
            chances[place] = _chance(float(word_logits[place]), wrong_words)
        doubtful = [place for place in judged if (chances[place] or 0.0) < self.doubt]
        return Review(
            words=tuple(self.vocabulary.spellings.get(word, word) for word in words),
            chances=tuple(chances),
            unknown=tuple(word for word, unknown in zip(words, is_unknown, strict=True) if unknown),
            doubtful=tuple(doubtful),
            belongs=_chance(caption_logit, self.wrong_share),
            alternatives=self._alternatives(logits[doubtful], tokens[doubtful]),
        )

    def _alternatives(
        self, logits: Float[Tensor, "n V"], tokens: Int[Tensor, " n"]
    ) -> tuple[tuple[str, ...], ...]:
        """Return the words that the model would rather say than each token."""
        log_probs = generable_log_probs(logits).scatter_(1, tokens[:, None], float("-inf"))
        log_probs[:, EOS] = float("-inf")
        count = min(ALTERNATIVES, len(self.vocabulary.words) - 1)
        return tuple(map(self.vocabulary.spelt, log_probs.topk(count, dim=1).indices.tolist()))


def _regression(
    features: Float[Tensor, "*B S"], names: Sequence[str], weights: Mapping[str, float]
) -> Float[Tensor, "*B"]:
    """Return the log-odds of a logistic regression."""
    return features @ features.new_tensor([weights[name] for name in names]) + weights[BIAS]


def _chance(logit: float, wrong_share: float) -> float:
    """Return the chance of these log-odds, which hold for half wrong, at another share of wrong."""
    logit += math.log((1 - wrong_share) / wrong_share)
    return (1 + math.tanh(logit / 2)) / 2
