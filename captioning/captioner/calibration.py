"""How sure a captioner is: calibrated word probabilities, and the chance that a caption is good.

Shapes: B images, N captions per image, T words, V vocabulary, S signs.
"""

from dataclasses import asdict, dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from captioning.data.vocabulary import PAD
from captioning.errors import InputError
from captioning.numbers import Temperature, unmet_requirement
from captioning.search import Decoded
from captioning.search.search import generable_log_probs

SIGNS = ("mean log probability", "least log probability", "mean entropy", "margin", "length")
"""What the confidence in a caption follows from: its words' log probabilities and the entropy of
the words that could have been there, in nats, its score minus that of the best other caption, and
its number of words."""

LARGEST = 1e6
"""The largest weight or mean of a sign."""


@dataclass(frozen=True)
class Calibration:
    """Turns what a search knows of a caption into probabilities that mean what they say.

    Attributes:
        temperature: what logits are divided by before the softmax (Guo et al. 2017, "On Calibration
            of Modern Neural Networks"); searches go on without it.
        means: of each of `SIGNS`; stands for a sign that is not known.
        weights: of each sign, in a logistic regression of whether a caption is good.
        bias: of that regression.
    """

    temperature: float
    means: tuple[float, ...]
    weights: tuple[float, ...]
    bias: float

    @classmethod
    def from_config(cls, config: Any) -> "Calibration":
        """The calibration with these plain values; raises InputError if they do not fit."""
        try:
            found = cls(
                config["temperature"],
                tuple(config["means"]),
                tuple(config["weights"]),
                config["bias"],
            )
            numbers = torch.tensor([*found.means, *found.weights, found.bias], dtype=torch.float64)
        except (KeyError, TypeError, ValueError, RuntimeError):
            raise InputError("the model's calibration is damaged") from None
        if (
            unmet_requirement(Temperature, found.temperature)
            or not len(found.means) == len(found.weights) == len(SIGNS)
            or not (numbers.abs() <= LARGEST).all()
        ):
            raise InputError("the model's calibration has numbers out of range")
        return found

    @property
    def config(self) -> dict[str, Any]:
        """Plain values for `from_config`."""
        return {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(self).items()}

    def log_probs(
        self, logits: Float[Tensor, "*B T V"], tokens: Int[Tensor, "*B T"]
    ) -> Float[Tensor, "*B T"]:
        """The calibrated log probability of each token; zero at PAD."""
        log_probs = generable_log_probs(logits / self.temperature)
        found = log_probs.gather(-1, tokens[..., None]).squeeze(-1)
        return found.masked_fill(tokens == PAD, 0.0)

    def confidence(self, signs: Float[Tensor, "*B S"]) -> Float[Tensor, "*B"]:
        """The chance that each caption is good; NaN stands for a sign that is not known."""
        means = signs.new_tensor(self.means)
        known = torch.where(signs.isnan(), means, signs)
        return ((known - means) @ signs.new_tensor(self.weights) + self.bias).sigmoid()


def signs_of(
    decoded: Decoded, margin: Float[Tensor, "B N"], logits: Float[Tensor, "B N T V"]
) -> Float[Tensor, "B N S"]:
    """The `SIGNS` of captions, from the logits before each of their tokens and their `margins`."""
    real = decoded.tokens != PAD
    length = real.sum(dim=2).clamp(min=1)
    chosen = decoded.log_probs.float().masked_fill(~real, 0.0)
    log_probs = generable_log_probs(logits)
    # Words that are never generated have probability 0 and log probability minus infinity.
    entropy = -(log_probs.exp() * log_probs.clamp(min=-1e4)).sum(dim=3).masked_fill(~real, 0.0)
    columns = (
        chosen.sum(dim=2) / length,
        chosen.amin(dim=2),
        entropy.sum(dim=2) / length,
        margin.float(),
        length.float(),
    )
    return torch.stack(columns, dim=2)


def margins(scores: Float[Tensor, "B N"]) -> Float[Tensor, "B N"]:
    """Each score minus the best other one of its image, the scores in order; NaN without others."""
    if scores.shape[1] == 1:
        return torch.full_like(scores, torch.nan)
    best = torch.cat([scores[:, 1:2], scores[:, :1].expand(-1, scores.shape[1] - 1)], dim=1)
    found = scores - best
    return found.masked_fill(~found.isfinite(), torch.nan)
