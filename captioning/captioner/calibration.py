"""Calibrated probabilities of words, and the confidence in captions.

Shapes: B images, N captions per image, T words, V vocabulary, S features.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from captioning.data.tokens import FUNCTION_WORDS
from captioning.data.vocabulary import PAD
from captioning.errors import InputError
from captioning.search import Decoded
from captioning.search.search import generable_log_probs

FEATURES = ("mean log probability", "mean entropy", "length", "rarest word", "kind of photo")
"""Features of the confidence regression. Log probabilities of words, and entropies of the
distributions they come from, are in nats; rarest word: the largest logarithm of a word's place by
frequency, the most frequent first; kind of photo: `Calibration.kind`."""

LISTED = (
    "mean log probability",
    "least log probability",
    "mean entropy",
    "margin",
    "length",
    "rarest word",
    "kind of photo",
)
"""The features whose means and weights files of version 0.4 list, and of 0.3 the first five."""

LEAST = 1e-4
"""Probabilities nearer to 0 or 1 than this count as so near."""


@dataclass(frozen=True)
class Calibration:
    """Turns what a search knows of a caption into calibrated probabilities.

    Attributes:
        temperature: what logits are divided by before the softmax (Guo et al. 2017, "On Calibration
            of Modern Neural Networks"); searches do without it.
        means: of each of `FEATURES`, by name; stand for those that are not known.
        weights: of each feature, by name, in a logistic regression of whether a caption is good.
        bias: of that regression.
        photo: weights of the mean annotation vector, and a bias: how good captions are in the data
            set whose photos look like this one; empty if one data set was known.
        named: slope and intercept of the log-odds that people name what a word names, by those of
            its probability (Platt scaling), and the weight of the kind of photo, which models of
            earlier versions do without; empty if unknown.
        search: the config of the search whose captions it was fitted on; confidences hold for no
            other search.

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

    def __post_init__(self) -> None:
        by_feature = (*self.means.values(), *self.weights.values())
        numbers = (self.temperature, self.bias, *by_feature, *self.photo, *self.named)
        is_finite = all(map(math.isfinite, numbers))
        if not is_finite or self.temperature <= 0 or len(self.named) not in (0, 2, 3):
            raise InputError("the calibration has values without meaning; calibrate again")

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "Calibration":
        """The calibration of a file; features that the file lacks weigh 0."""
        means, weights = (
            {name: by_name(config[column]).get(name, 0.0) for name in FEATURES}
            for column in ("means", "weights")
        )
        return cls(**{**config, "means": means, "weights": weights})

    def confidence(self, features: Float[Tensor, "*B S"]) -> Float[Tensor, "*B"]:
        """The chance that each caption is good; NaN stands for a feature that is not known."""
        means, weights = (
            features.new_tensor([values[name] for name in FEATURES])
            for values in (self.means, self.weights)
        )
        differences = torch.where(features.isnan(), 0.0, features - means)
        return (differences @ weights + self.bias).sigmoid()

    def kind(self, annotations: Float[Tensor, "B L D"]) -> Float[Tensor, " B"]:
        """The feature that depends on the photo alone; NaN if it is not known."""
        means = annotations.float().mean(dim=1)
        if not self.photo:
            return means.new_full((len(means),), torch.nan)
        *weights, bias = self.photo
        return means @ means.new_tensor(weights) + bias

    def chance_named(self, word: str, probability: float, kind: float) -> float | None:
        """The chance that people name what a word names; None for function words, or unknown.

        Args:
            word: in any spelling.
            probability: of the word, calibrated.
            kind: `kind` of the photo; NaN stands for the mean kind.
        """
        if not self.named or word.lower() in FUNCTION_WORDS:
            return None
        slope, intercept, *of_kind = self.named
        if of_kind and not math.isnan(kind):
            intercept += of_kind[0] * (kind - self.means["kind of photo"])
        against = math.log(1 / min(max(probability, LEAST), 1 - LEAST) - 1)
        return (1 - math.tanh((slope * against - intercept) / 2)) / 2  # the sigmoid; no overflow


def by_name(values: Mapping[str, float] | Sequence[float]) -> dict[str, float]:
    """The means or weights of a file's calibration; files of earlier versions list them."""
    return dict(values if isinstance(values, Mapping) else zip(LISTED, values, strict=False))


def removed_features(config: Mapping[str, Any]) -> list[str]:
    """The features of a file's calibration that had a weight and that this version lacks."""
    weights = by_name(config["weights"])
    return [name for name, weight in weights.items() if weight and name not in FEATURES]


def confidence_features(
    decoded: Decoded,
    logits: Float[Tensor, "B N T V"],
    kinds: Float[Tensor, " B"],
    places: Sequence[int],
) -> Float[Tensor, "B N S"]:
    """The `FEATURES` of captions.

    Args:
        decoded: the captions.
        logits: before each of their tokens.
        kinds: `Calibration.kind` of the photos.
        places: `Vocabulary.frequency_ranks`.
    """
    real = decoded.tokens != PAD
    length = real.sum(dim=2).clamp(min=1)
    chosen = decoded.log_probs.float().masked_fill(~real, 0.0)
    log_probs = generable_log_probs(logits)
    # Words that are never generated have probability 0 and log probability minus infinity.
    entropy = -(log_probs.exp() * log_probs.clamp(min=-1e4)).sum(dim=3).masked_fill(~real, 0.0)
    columns = (
        chosen.sum(dim=2) / length,
        entropy.sum(dim=2) / length,
        length.float(),
        (decoded.tokens.new_tensor(places)[decoded.tokens].amax(dim=2) + 1).float().log(),
        kinds[:, None].expand_as(length).float(),
    )
    return torch.stack(columns, dim=2)
