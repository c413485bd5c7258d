"""A map of the regions that decide for a word.

Shapes: B images, N captions per image, L regions (rows x columns), T words.
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from captioning.maps.evidence_map import around_each
from captioning.maps.reading import Reading
from captioning.maps.sampled_effects import sampled_effects
from captioning.maps.word_map import Maps, WordMap
from captioning.search.search import generable_log_probs

EARLIER = 0.5
"""What the contexts of earlier words count in choice, beside that of the word's own step."""

EFFECT = 0.3
"""What the sampled effect counts in choice."""

ATTENTION = 0.18
"""What log attention counts in choice."""

FLATTENING = 0.8
"""The power of the other words' probabilities: below one, unlikely words count for more."""

THRESHOLD = 1.0
"""Standard deviations above the photo's mean from which on a region stands out."""

BEND = 80.0
"""How sharply the excess bends at the threshold. Below it next to nothing is left, but in order."""

POWER = 0.25
"""Of what choice exceeds the threshold by; a root, so that the best have not all."""

STRENGTH = 0.5
"""The factor of strength, a standard score, before it is exponentiated."""


class StandoutMap(WordMap):
    """The regions that decide for the word, each by how strongly it speaks for it.

    Two scores of each region make the map. The first is its *choice*: its context evidence for the
    word against the other words that the model expected there, plus some of its sampled effect on
    the word's probability and of log attention. Context evidence is fine, and tells what the
    region's vector does to the word; the effect is coarse, but counts all ways from the region to
    the word; attention tells how much of the region was read. The second score is its *strength*:
    the evidence for the word against the mean of all words, averaged over the regions around, and
    log attention. Choice tells what the word needs from what it does not, strength the object
    within that from what helped to name it. All are standard scores over the photo's regions.

    A region stands out where its choice exceeds the mean by `THRESHOLD` standard deviations. Its
    share is in proportion to the fourth root of that excess, times the exponential of half of its
    strength. The excess is a softplus, so that what does not stand out has an order, that of
    choice. Standard scores do not grow with how sure the model is, as evidence does, so half of
    the map lies in about as many regions for every word.
    """

    needs_evidence = True

    @torch.no_grad()
    def __call__(self, reading: Reading) -> Maps:
        """The excess of choice, weighed by evidence and attention, as shares."""
        reading.need_one_grid()
        decoder = reading.decoder
        memory = decoder.remember(reading.annotations)
        logits, weights = decoder.teacher_forcing(memory, reading.tokens[..., :-1])
        words = reading.tokens[..., 1:]
        log_probs = generable_log_probs(logits)
        of_others = (FLATTENING * log_probs).scatter(-1, words[..., None], float("-inf"))
        attended = standard_scores(weights.clamp_min(torch.finfo(weights.dtype).tiny).log())
        of_word = standard_scores(around_each(decoder.evidence(memory, words), reading.grid))
        of_choice = standard_scores(
            decoder.context_evidence(memory, reading.tokens, of_others.softmax(dim=-1), EARLIER)
        )
        effects = standard_scores(sampled_effects(reading))
        choice = standard_scores(of_choice + EFFECT * effects + ATTENTION * attended)
        strength = standard_scores(of_word + attended)
        log_excess = log_softplus(BEND * (choice - THRESHOLD))
        found = (POWER * log_excess + STRENGTH * strength).softmax(dim=-1)
        return found.unflatten(-1, reading.grid)


def log_softplus(values: Float[Tensor, "B N T L"]) -> Float[Tensor, "B N T L"]:
    """The logarithm of log(1 + exp(x)), also where that would be zero in single precision."""
    return torch.where(values < -15, values, F.softplus(values).log())


def standard_scores(values: Float[Tensor, "B N T L"]) -> Float[Tensor, "B N T L"]:
    """Standard deviations above the mean over regions; zero where all regions are alike."""
    deviation, mean = torch.std_mean(values, dim=-1, keepdim=True, correction=0)
    return (values - mean) / deviation.clamp_min(torch.finfo(values.dtype).tiny)
