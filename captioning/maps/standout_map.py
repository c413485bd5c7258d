"""A map of the regions that stand out from the rest of the photo.

Shapes: B images, N captions per image, L regions (rows x columns), T words.
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from captioning.maps.evidence_map import around_each
from captioning.maps.reading import Reading
from captioning.maps.word_map import Maps, WordMap, shares
from captioning.search.search import generable_log_probs

CHOICE = 0.5
"""What the evidence against the other expected words counts beside evidence and attention."""

THRESHOLD = 1.0
"""Standard deviations above the photo's mean from which on a region stands out."""

BEND = 40.0
"""How sharply the excess bends at the threshold. Below it next to nothing is left, but in order."""

POWER = 0.25
"""Of what a region's score exceeds the threshold by; a root, so that the best have not all."""


class StandoutMap(WordMap):
    """The regions whose evidence and attention stand out, each by how far it does.

    A softmax of the evidence is as sharp as the evidence is large: half of its map lies in few
    regions for one word, in many for another. Standard scores over the photo's regions are not:
    of the evidence, of the logarithm of attention, and, for half as much, of the evidence against
    the other words that the model expected there. The first, averaged over the regions around,
    tells the whole object from the rest of the photo, the last the regions that decide for this
    word rather than another. The map is the fourth root of what their sum, a standard score again,
    exceeds `THRESHOLD` by, so half of it lies in about as many regions for every word. The excess
    is a softplus, so that what does not stand out has an order.
    """

    takes_one_pass = True
    needs_evidence = True

    @torch.no_grad()
    def __call__(self, reading: Reading) -> Maps:
        """The root of the excess, as shares."""
        reading.need_one_grid()
        decoder = reading.decoder
        memory = decoder.remember(reading.annotations)
        logits, weights = decoder.teacher_forcing(memory, reading.tokens[..., :-1])
        words = reading.tokens[..., 1:]
        attended = weights.clamp_min(torch.finfo(weights.dtype).tiny).log()
        log_probs = generable_log_probs(logits)
        others = log_probs.scatter(-1, words[..., None], float("-inf")).softmax(dim=-1)
        scores = (
            standard_scores(around_each(decoder.evidence(memory, words), reading.grid))
            + CHOICE * standard_scores(decoder.evidence(memory, words, others))
            + standard_scores(attended)
        )
        scores = standard_scores(scores)
        # In double precision, in which the excess of no region vanishes.
        excess = F.softplus(scores.double() - THRESHOLD, beta=BEND)
        return shares(excess**POWER, reading.grid).to(scores.dtype)


def standard_scores(values: Float[Tensor, "B N T L"]) -> Float[Tensor, "B N T L"]:
    """Standard deviations above the mean over regions; zero where all regions are alike."""
    deviation, mean = torch.std_mean(values, dim=-1, keepdim=True, correction=0)
    return (values - mean) / deviation.clamp_min(torch.finfo(values.dtype).tiny)
