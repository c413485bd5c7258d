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

BLOCK_SIZE = 128
"""Number of scores in a block of `largest`."""


def largest(
    scores: Float[Tensor, "B X"], k: int
) -> tuple[Float[Tensor, "B k"], Int[Tensor, "B k"]]:
    """Equals `scores.topk(k)` in less time: these lie in the k blocks with the largest maxima."""
    indices = torch.arange(scores.shape[1], device=scores.device)
    end = len(indices) // BLOCK_SIZE * BLOCK_SIZE
    maxima = scores[:, :end].unflatten(1, (-1, BLOCK_SIZE)).amax(dim=2)
    blocks = maxima.topk(min(k, maxima.shape[1])).indices
    candidates = (blocks[:, :, None] * BLOCK_SIZE + indices[:BLOCK_SIZE]).flatten(1)
    candidates = torch.cat([candidates, indices[end:].expand(len(scores), -1)], dim=1)
    best, candidate_indices = scores.gather(1, candidates).topk(k)
    return best, candidates.gather(1, candidate_indices)


@dataclass(eq=False)
class BeamSearch(Search):
    """Keeps the `width` best captions of each image at every word.

    Unfinished and finished captions are ranked together by their length-normalised log probability,
    so a finished caption stays until better ones replace it.

    Args:
        width: N, number of captions to follow and to return per image.
        length_penalty: 0 ranks captions by their probability, which favours short ones, 1 by the
            mean log probability of their words.
    """

    limits: ClassVar = {"width": range(1, 4097)}

    width: int = 3
    length_penalty: float = 1.0

    def start(self, memory: Memory) -> Decoded:
        """One empty caption per image; the other beams have none."""
        decoded = Decoded.empty(memory, self.width)
        decoded.scores[:, 1:] = -inf  # beams start equal, so only the first may branch
        return decoded

    def gains(
        self, decoded: Decoded, log_probs: Float[Tensor, "B N V"]
    ) -> Iterable[Float[Tensor, "B N V"]]:
        """What each next word adds to a caption's score; minus infinity for forbidden words.

        One tensor for each bank of continuations, of which the N best can be chosen. A plain beam
        search has one bank, a `ConstrainedBeamSearch` several.
        """
        self.forbid(log_probs, decoded.tokens)
        return [log_probs]

    def extend(self, decoded: Decoded, step: Step) -> tuple[Decoded, State]:
        """Follow the best captions of each image, among continued and finished ones."""
        log_probs, finished = generable_log_probs(step.logits), decoded.finished
        vocabulary = log_probs.shape[2]
        running = decoded.scores.masked_fill(finished, -inf)[:, :, None]
        banks = [
            largest((running + gains).flatten(1), self.width)
            for gains in self.gains(decoded, log_probs)
        ]
        # An index of a continuation stands for a beam and its next word.
        totals, indices = (torch.cat(parts, dim=1) for parts in zip(*banks, strict=True))
        # A finished caption has one continuation: PAD, at no cost.
        finished_scores = decoded.scores.masked_fill(~finished, -inf)
        lengths = torch.full_like(indices, decoded.tokens.shape[2] + 1)
        lengths = torch.cat([lengths, (decoded.tokens != PAD).sum(dim=2)], dim=1)
        scores = torch.cat([totals, finished_scores], dim=1) / lengths**self.length_penalty
        beams = self.choose(scores)
        same_beams = torch.arange(self.width, device=indices.device).expand_as(finished_scores)
        parents = torch.cat([indices // vocabulary, same_beams], dim=1).gather(1, beams)
        words = F.pad(indices % vocabulary, (0, self.width), value=PAD).gather(1, beams)
        word_log_probs = F.pad(log_probs.flatten(1).gather(1, indices), (0, self.width))
        word_log_probs = word_log_probs.gather(1, beams)
        is_missing = scores.gather(1, beams).isneginf()  # fewer captions than beams
        words = words.masked_fill(is_missing, EOS)
        word_log_probs = word_log_probs.masked_fill(is_missing, -inf)
        state = {name: take_along_captions(part, parents) for name, part in step.state.items()}
        weights = take_along_captions(step.weights, parents)
        return decoded.extended(words, word_log_probs, weights, parents), state

    def choose(self, scores: Float[Tensor, "B K"]) -> Int[Tensor, "B N"]:
        """Choose the indices of the captions to follow, the best first.

        Args:
            scores: length-normalised scores of the N best continued captions of each bank, then of
                the N finished captions; minus infinity for none.
        """
        return scores.topk(self.width).indices
