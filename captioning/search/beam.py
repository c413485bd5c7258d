"""Beam search: follows several captions of each image at once.

Shapes: B images, N captions per image, T words, V vocabulary, K captions to choose from.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from captioning.data.vocabulary import EOS, PAD
from captioning.models.decoder import Memory, State, Step
from captioning.search.search import Decoded, Search, generable_log_probs, take_along_captions

BLOCK = 128
"""Scores of a block in which `largest` looks for the best ones."""


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

    limits: ClassVar = {"width": range(1, 4097)}

    width: int = 3
    length_penalty: float = 1.0

    def start(self, memory: Memory) -> Decoded:
        """One empty caption per image, and empty beams for the others."""
        decoded = Decoded.empty(memory, self.width)
        decoded.scores[:, 1:] = -inf  # beams start equal, so only the first may branch
        return decoded

    def gains(
        self, decoded: Decoded, log_probs: Float[Tensor, "B N V"]
    ) -> Iterable[Float[Tensor, "B N V"]]:
        """What each next word adds to a caption's score, for each bank of words to choose from.

        Minus infinity if it may not follow.
        """
        self.forbid(log_probs, decoded.tokens)
        return [log_probs]

    def extend(self, decoded: Decoded, step: Step) -> tuple[Decoded, State]:
        """The best captions of each image, both continued and ended ones."""
        log_probs, finished = generable_log_probs(step.logits), decoded.finished
        vocabulary = log_probs.shape[2]
        running = decoded.scores.masked_fill(finished, -inf)[:, :, None]
        banks = [
            largest((running + gains).flatten(1), self.width)
            for gains in self.gains(decoded, log_probs)
        ]
        totals, places = (torch.cat(parts, dim=1) for parts in zip(*banks, strict=True))
        # An ended caption has one continuation: PAD, at no cost.
        ended = decoded.scores.masked_fill(~finished, -inf)
        lengths = torch.full_like(places, decoded.tokens.shape[2] + 1)
        lengths = torch.cat([lengths, (decoded.tokens != PAD).sum(dim=2)], dim=1)
        ranks = torch.cat([totals, ended], dim=1) / lengths**self.length_penalty
        chosen = self.choose(ranks)
        unchanged = torch.arange(self.width, device=places.device).expand_as(ended)
        parents = torch.cat([places // vocabulary, unchanged], dim=1).gather(1, chosen)
        words = F.pad(places % vocabulary, (0, self.width), value=PAD).gather(1, chosen)
        own = F.pad(log_probs.flatten(1).gather(1, places), (0, self.width)).gather(1, chosen)
        missing = ranks.gather(1, chosen).isneginf()  # fewer captions than beams
        words, own = words.masked_fill(missing, EOS), own.masked_fill(missing, -inf)
        state = {name: take_along_captions(part, parents) for name, part in step.state.items()}
        weights = take_along_captions(step.weights, parents)
        return decoded.extended(words, own, weights, parents), state

    def choose(self, ranks: Float[Tensor, "B K"]) -> Int[Tensor, "B N"]:
        """The places of the captions to follow, the best first.

        Args:
            ranks: of the N best continued captions of each bank, then of the N ended ones; minus
                infinity for none.
        """
        return ranks.topk(self.width).indices
