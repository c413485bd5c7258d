"""Calibrated probabilities of words, and the confidence in captions.

Shapes: B images, N captions per image, T words, V vocabulary, S features.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from captioning.data.tokens import FUNCTION_WORDS
from captioning.data.vocabulary import PAD, Vocabulary
from captioning.errors import InputError
from captioning.search import Decoded
from captioning.search.search import generable_log_probs

DIGITS = 4
"""Significant digits of chances and scores in files and answers."""

FEATURES = (
    "mean log probability",
    "mean entropy",
    "length",
    "rarest word",
    "content words",
    "kind of photo",
)
"""Features of the confidence regression. Log probabilities of words, and entropies of the
distributions they come from, are in nats; rarest word: the largest logarithm of a word's place by
frequency, the most frequent first; content words: the mean log-odds of their probabilities before
calibration, unknown if there are none; kind of photo: `Calibration.photo_kind`."""

FEATURES_OF_LISTS = (
    "mean log probability",
    "least log probability",
    "mean entropy",
    "margin",
    "length",
    "rarest word",
    "kind of photo",
)
"""The features whose means and weights are lists in files of version 0.4; of 0.3 the first five."""

LEAST_CHANCE = 1e-4
"""Probabilities are clipped to [LEAST_CHANCE, 1 - LEAST_CHANCE]."""


WORD_FEATURES = (
    "log probability",
    "log probability without the photo",
    "log odds against alternatives",
)
CAPTION_FEATURES = ("mean log ratio", "mean log probability")
"""Features of reviews of words and of captions, in nats; the log odds against alternatives are
those of the caption against the same with other words there. The log ratio of a caption is its log
probability given the photo minus that given other photos (`ReviewCalibration.priors`). Both
features of captions are per word."""

BIAS = "bias"
"""The bias of a review's regression, among its weights."""


PHOTO_WORD_WEIGHTS = dict(zip((*WORD_FEATURES, BIAS), (0.49, -0.39, 0.29, 1.28), strict=True))
PHOTO_CAPTION_WEIGHTS = dict(zip((*CAPTION_FEATURES, BIAS), (3.3, 0.37, 2.1), strict=True))
"""The weights of the model that comes with the package, for models without their own."""


@dataclass(frozen=True)
class ReviewCalibration:
    """What reviews of captions are computed from.

    Attributes:
        priors: mean adapted annotation vectors of groups of photos that look alike. A caption's
            probability without its photo is the mean of its probabilities given each of them; a
            word's is given their mean, which stands for no photo in particular.
        word_weights: of `WORD_FEATURES` and `BIAS`, in a logistic regression of whether the photo
            bears a word out, where half of the words are borne out.
        caption_weights: of `CAPTION_FEATURES` and `BIAS`, likewise of whether a caption belongs to
            its photo. By default both are those of the photo model.

    Raises:
        InputError: a value is not a finite number, or there are no priors of one width.
    """

    priors: Sequence[Sequence[float]] = field(repr=False)
    word_weights: Mapping[str, float] = field(default_factory=lambda: PHOTO_WORD_WEIGHTS)
    caption_weights: Mapping[str, float] = field(default_factory=lambda: PHOTO_CAPTION_WEIGHTS)

    def __post_init__(self) -> None:
        weights = [*self.word_weights.values(), *self.caption_weights.values()]
        widths = {len(prior) for prior in self.priors}
        if len(widths) != 1 or not all(map(math.isfinite, chain(weights, *self.priors))):
            raise InputError("the calibration has values without meaning; calibrate again")


@dataclass(frozen=True)
class Calibration:
    """Calibrated probabilities of words, and the confidence in captions.

    Attributes:
        temperature: divides logits before the softmax (Guo et al. 2017, "On Calibration of Modern
            Neural Networks"); searches do not use it.
        means: the mean of each of `FEATURES`, by name; replaces a feature that is unknown.
        weights: the weight of each feature, by name, in a logistic regression of whether a caption
            is good.
        bias: the bias of that regression.
        photo: a linear function of the mean annotation vector, its weights and a bias: how good
            captions are in the data set whose photos look like this one; empty if there was one
            data set.
        named: Platt scaling from the log-odds of a word's probability to those that people name
            what it names: slope, intercept, and the weight of the kind of photo, which files of
            earlier versions lack; empty if unknown.
        search: the config of the search whose captions it was fitted on; confidences hold for this
            search only.
        review: of reviews of captions; None if it was not fitted.

    Raises:
        InputError: a value is not a finite number, or has no meaning.
    """

    temperature: float
    means: Mapping[str, float]
    weights: Mapping[str, float]
    bias: float
    photo: Sequence[float] = ()
    named: Sequence[float] = ()
    search: Mapping[str, Any] = field(default_factory=dict)
    review: ReviewCalibration | None = None

    def __post_init__(self) -> None:
        numbers = [self.temperature, self.bias, *self.photo, *self.named]
        numbers += [*self.means.values(), *self.weights.values()]
        is_finite = all(map(math.isfinite, numbers))
        if not is_finite or self.temperature <= 0 or len(self.named) not in (0, 2, 3):
            raise InputError("the calibration has values without meaning; calibrate again")

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "Calibration":
        """Build the calibration of a file; features that the file lacks weigh 0."""
        means, weights = values_by_feature(config["means"]), values_by_feature(config["weights"])
        review = config.get("review")
        if review and "prior" in review:  # of files written before there were several
            review = {**review, "priors": [review["prior"]]}
            del review["prior"]
        return cls(
            **{
                **config,
                "means": {name: means.get(name, 0.0) for name in FEATURES},
                "weights": {name: weights.get(name, 0.0) for name in FEATURES},
                "review": review and ReviewCalibration(**review),
            }
        )

    def confidence(self, features: Float[Tensor, "*B S"]) -> Float[Tensor, "*B"]:
        """Return the chance that each caption is good; unknown features are NaN."""
        means = features.new_tensor([self.means[name] for name in FEATURES])
        weights = features.new_tensor([self.weights[name] for name in FEATURES])
        differences = torch.where(features.isnan(), 0.0, features - means)
        return (differences @ weights + self.bias).sigmoid()

    def photo_kind(self, annotations: Float[Tensor, "B L D"]) -> Float[Tensor, " B"]:
        """Return the feature "kind of photo": a linear function of the mean annotation vector.

        It estimates the share of good captions in the data set whose photos look like this one. NaN
        if the calibration has no weights for it.
        """
        means = annotations.float().mean(dim=1)
        if not self.photo:
            return means.new_full((len(means),), torch.nan)
        *weights, bias = self.photo
        return means @ means.new_tensor(weights) + bias

    def chance_named(self, word: str, probability: float, photo_kind: float) -> float | None:
        """Return the chance that people name what a word names; None for function words.

        Also None if the calibration has none.

        Args:
            word: the word, in any spelling.
            probability: its calibrated probability.
            photo_kind: of the photo; NaN for the mean of all photos.
        """
        if not self.named or word.lower() in FUNCTION_WORDS:
            return None
        slope, intercept = self.named[:2]
        if len(self.named) > 2 and not math.isnan(photo_kind):
            intercept += self.named[2] * (photo_kind - self.means["kind of photo"])
        odds_against = 1 / min(max(probability, LEAST_CHANCE), 1 - LEAST_CHANCE) - 1
        logit = slope * math.log(odds_against) - intercept
        return (1 - math.tanh(logit / 2)) / 2  # the sigmoid of -logit, without overflow


def values_by_feature(values: Mapping[str, float] | Sequence[float]) -> dict[str, float]:
    """Return the means or weights of a file by feature; they are lists in earlier versions."""
    if isinstance(values, Mapping):
        return dict(values)
    return dict(zip(FEATURES_OF_LISTS, values, strict=False))


def removed_features(config: Mapping[str, Any]) -> list[str]:
    """Return the features with a weight in a file's calibration that this version lacks."""
    weights = values_by_feature(config["weights"])
    return [name for name, weight in weights.items() if weight and name not in FEATURES]


def confidence_features(
    decoded: Decoded,
    logits: Float[Tensor, "B N T V"],
    photo_kinds: Float[Tensor, " B"],
    vocabulary: Vocabulary,
) -> Float[Tensor, "B N S"]:
    """Compute the `FEATURES` of captions.

    Args:
        decoded: the captions.
        logits: the logits before each of their tokens.
        photo_kinds: `Calibration.photo_kind` of the photos.
        vocabulary: of the captions.
    """
    is_pad = decoded.tokens == PAD
    length = (~is_pad).sum(dim=2).clamp(min=1)
    token_log_probs = decoded.log_probs.float().masked_fill(is_pad, 0.0)
    log_probs = generable_log_probs(logits)
    # Words that are never generated have probability 0 and log probability minus infinity.
    entropy = -(log_probs.exp() * log_probs.clamp(min=-1e4)).sum(dim=3).masked_fill(is_pad, 0.0)
    ranks = decoded.tokens.new_tensor(vocabulary.frequency_ranks)[decoded.tokens]
    is_content = decoded.tokens.new_tensor(vocabulary.content_ids)[decoded.tokens] != PAD
    content_log_odds = token_log_probs.exp().logit(eps=LEAST_CHANCE).where(is_content, 0.0)
    columns = (
        token_log_probs.sum(dim=2) / length,
        entropy.sum(dim=2) / length,
        length.float(),
        (ranks.amax(dim=2) + 1).float().log(),
        content_log_odds.sum(dim=2) / is_content.sum(dim=2),  # NaN if there are none
        photo_kinds[:, None].expand_as(length).float(),
    )
    return torch.stack(columns, dim=2)


def rounded(number: float) -> float:
    """Round to `DIGITS` significant digits, so that no chance above 0 becomes 0."""
    return float(f"{number:.{DIGITS}g}")
