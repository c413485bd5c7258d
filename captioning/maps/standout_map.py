"""A map of the regions that decide for a word.

Shapes: B images, N captions per image, L regions (rows x columns), T words.
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from captioning.maps.evidence_map import around_each
from captioning.maps.reading import Reading
from captioning.maps.word_map import Maps, WordMap
from captioning.search.search import generable_log_probs

ATTENTION = 0.25
"""What attention counts in choice."""

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

    Two scores of each region make the map. The first is its *choice*: the evidence for the word
    against the other words that the model expected there, with a quarter of log attention, since
    a region that was not looked at decided less. The second is its *strength*: the evidence for
    the word against the mean of all words, averaged over the regions around, and log attention.
    Choice tells what the word needs from what it does not, strength the object within that from
    what helped to name it. All are standard scores over the photo's regions.

    A region stands out where its choice exceeds the mean by `THRESHOLD` standard deviations. Its
    share is in proportion to the fourth root of that excess, times the exponential of half of its
    strength. The excess is a softplus, so that what does not stand out has an order, that of
    choice. Standard scores do not grow with how sure the model is, as evidence does, so half of
    the map lies in about as many regions for every word.
    """

    takes_one_pass = True
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
        others = log_probs.scatter(-1, words[..., None], float("-inf")).softmax(dim=-1)
        attended = standard_scores(weights.clamp_min(torch.finfo(weights.dtype).tiny).log())
        of_word = standard_scores(around_each(decoder.evidence(memory, words), reading.grid))
        of_choice = standard_scores(decoder.evidence(memory, words, others))
        choice = standard_scores(of_choice + ATTENTION * attended)
        strength = standard_scores(of_word + attended)
        # In double precision, in which the excess of no region vanishes.
        excess = F.softplus(choice.double() - THRESHOLD, beta=BEND)
        found = (POWER * excess.log() + STRENGTH * strength).softmax(dim=-1)
        return found.unflatten(-1, reading.grid).to(weights.dtype)


def standard_scores(values: Float[Tensor, "B N T L"]) -> Float[Tensor, "B N T L"]:
    """Standard deviations above the mean over regions; zero where all regions are alike."""
    deviation, mean = torch.std_mean(values, dim=-1, keepdim=True, correction=0)
    return (values - mean) / deviation.clamp_min(torch.finfo(values.dtype).tiny)
