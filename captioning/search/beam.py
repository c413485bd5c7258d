"""Beam search: follows several captions of each image at once.

Shapes: B images, N captions per image, T words, V vocabulary, k next words of an image.
"""

from dataclasses import dataclass
from math import inf
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from captioning.data.vocabulary import EOS, PAD
from captioning.models.decoder import Memory, State, Step
from captioning.search.hypotheses import Hypotheses, take_along_captions
from captioning.search.search import Search, generable_log_probs

BLOCK = 128
"""Scores of a block in which `largest` looks for the best ones."""


class Continuations(NamedTuple):
    """The best next words of an image's captions, the best first."""

    totals: Float[Tensor, "B k"]  # log probabilities of the captions with these words
    log_probs: Float[Tensor, "B k"]  # of the words
    captions: Int[Tensor, "B k"]  # index of the caption that each word continues
    words: Int[Tensor, "B k"]

    @classmethod
    def best(
        cls, totals: Float[Tensor, "B N V"], log_probs: Float[Tensor, "B N V"], k: int
    ) -> "Continuations":
        """The k continuations of each image's captions with the largest totals."""
        best, places = largest(totals.flatten(1), k)
        own = log_probs.flatten(1).gather(1, places)
        vocabulary = log_probs.shape[2]
        return cls(best, own, places // vocabulary, places % vocabulary)


def largest(
    scores: Float[Tensor, "B X"], k: int
) -> tuple[Float[Tensor, "B k"], Int[Tensor, "B k"]]:
    """Equals `scores.topk(k)`, in less time: they lie in the k blocks with the largest maxima."""
    every = torch.arange(scores.shape[1], device=scores.device)
    ends = len(every) // BLOCK * BLOCK
    maxima = scores[:, :ends].unflatten(1, (-1, BLOCK)).amax(dim=2)
    blocks = maxima.topk(min(k, maxima.shape[1])).indices
    places = (blocks[:, :, None] * BLOCK + every[:BLOCK]).flatten(1)
    places = torch.cat([places, every[ends:].expand(len(scores), -1)], dim=1)
    best, found = scores.gather(1, places).topk(k)
    return best, places.gather(1, found)


@dataclass(eq=False)
class BeamSearch(Search):
    """Keeps the `width` best captions of each image at every word.

    Unfinished and ended captions are ranked together by their length-normalised log probability, so
    an ended caption stays until better ones replace it.

    Args:
        width: N, number of captions to follow, and to return, per image.
        length_penalty: 0 ranks captions by their probability, which favours short ones, 1 by the
            mean log probability of their words.
    """

    width: int = 3
    length_penalty: float = 1.0

    def start(self, memory: Memory) -> Hypotheses:
        """One empty caption per image, and empty beams for the others."""
        hypotheses = Hypotheses.empty(memory, self.width)
        hypotheses.totals[:, 1:] = -inf  # beams start equal, so only the first may branch
        return hypotheses

    def continuations(self, step: Step, hypotheses: Hypotheses) -> Continuations:
        """The best next words of the captions that have not ended."""
        log_probs = generable_log_probs(step.logits)
        self.forbid(log_probs, hypotheses.tokens)
        totals = hypotheses.totals.masked_fill(hypotheses.finished, -inf)
        return Continuations.best(totals[:, :, None] + log_probs, log_probs, self.width)

    def extend(self, hypotheses: Hypotheses, step: Step) -> tuple[Hypotheses, State]:
        """The best captions of each image, both continued and ended ones."""
        found = self.continuations(step, hypotheses)
        # An ended caption has one continuation: PAD, at no cost.
        ended = hypotheses.totals.masked_fill(~hypotheses.finished, -inf)
        places = torch.arange(self.width, device=ended.device).expand_as(ended)
        lengths = torch.full_like(found.words, hypotheses.tokens.shape[2] + 1)
        ranks = torch.cat([found.totals, ended], dim=1)
        ranks /= (
            torch.cat([lengths, (hypotheses.tokens != PAD).sum(dim=2)], dim=1)
            ** self.length_penalty
        )
        ranks, chosen = self.choose(ranks)
        parents = torch.cat([found.captions, places], dim=1).gather(1, chosen)
        words = F.pad(found.words, (0, self.width), value=PAD).gather(1, chosen)
        log_probs = F.pad(found.log_probs, (0, self.width)).gather(1, chosen)
        missing = ranks.isneginf()  # fewer captions than beams
        words, log_probs = words.masked_fill(missing, EOS), log_probs.masked_fill(missing, -inf)
        state = {name: take_along_captions(part, parents) for name, part in step.state.items()}
        weights = take_along_captions(step.weights, parents)
        return hypotheses.extend(words, log_probs, weights, parents), state

    def choose(
        self, ranks: Float[Tensor, "B K"]
    ) -> tuple[Float[Tensor, "B N"], Int[Tensor, "B N"]]:
        """The ranks of the captions to follow, and their places among all.

        Args:
            ranks: of the `continuations`, then of the N ended captions; minus infinity for none.
        """
        best, places = ranks.topk(self.width)
        return best, places
