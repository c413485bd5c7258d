"""Beam search in groups, for captions that differ.

Shapes: B images, G groups, N captions per group, T words, V vocabulary.
"""

from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass
from math import inf
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from captioning.data.vocabulary import PAD
from captioning.models.decoder import Decoder, Memory, State, Step
from captioning.search.beam import BeamSearch
from captioning.search.search import Decoded


@dataclass(eq=False, kw_only=True)
class DiverseBeamSearch(BeamSearch):
    """One beam search after another, each penalised for words of earlier groups.

    Vijayakumar et al. 2018, "Diverse Beam Search for Improved Description of Complex Scenes", with
    Hamming diversity: a word costs `diversity` for each earlier group that has it in this place,
    or the share of its captions that do. (The paper counts the captions, so costs grow with the
    width.) Groups follow and choose captions by log probabilities less costs; scores are without
    them. Each group gives its best caption that no earlier group has given.

    Args:
        groups: G, number of captions to return per image.
        diversity: what a word costs, in nats; 0 is plain beam search.
    """

    limits: ClassVar = {"groups": range(1, 1001)}

    groups: int = 3
    diversity: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        self._said: list[Int[Tensor, "B k"]] = []  # the words of earlier groups, by their place

    @torch.no_grad()
    def __call__(self, decoder: Decoder, memory: Memory) -> Decoded:
        group = copy(self)  # which other calls do not share
        group._said = []
        found = [
            super(DiverseBeamSearch, group).__call__(decoder, memory) for _ in range(self.groups)
        ]
        longest = max(decoded.tokens.shape[2] for decoded in found)
        best: list[Decoded] = []
        for tokens, log_probs, weights, scores in found:
            missing = longest - tokens.shape[2]
            tokens, log_probs = (
                F.pad(tokens, (0, missing), value=PAD),
                F.pad(log_probs, (0, missing)),
            )
            for earlier in best:
                scores = scores.masked_fill((tokens == earlier.tokens).all(dim=2), -inf)
            weights = F.pad(weights, (0, 0, 0, missing))
            best.append(Decoded(tokens, log_probs, weights, scores).best(1))
        together = Decoded(*(torch.cat(parts, dim=1) for parts in zip(*best, strict=True)))
        lengths = (together.tokens != PAD).sum(dim=2)
        own = together.log_probs.sum(dim=2) / lengths**self.length_penalty
        own = own.masked_fill(together.scores.isneginf(), -inf)
        return together._replace(scores=own).best()

    def gains(
        self, decoded: Decoded, log_probs: Float[Tensor, "B N V"]
    ) -> Iterable[Float[Tensor, "B N V"]]:
        costs = self._costs(decoded, log_probs.shape[2])
        return [own - costs[:, None] for own in super().gains(decoded, log_probs)]

    def extend(self, decoded: Decoded, step: Step) -> tuple[Decoded, State]:
        """The best captions of the group, whose words will cost the groups after it."""
        longer, state = super().extend(decoded, step)
        words, place = longer.tokens[:, :, -1], decoded.tokens.shape[2]
        costs = self._costs(decoded, step.logits.shape[2]).gather(1, words)
        if place == len(self._said):
            self._said.append(words)
        else:
            self._said[place] = torch.cat([self._said[place], words], dim=1)
        return longer._replace(scores=longer.scores - costs), state

    def _costs(self, decoded: Decoded, vocabulary: int) -> Float[Tensor, "B V"]:
        """What each next word costs; nothing for PAD after ended captions."""
        place = decoded.tokens.shape[2]
        costs = decoded.scores.new_zeros(len(decoded.scores), vocabulary)
        if place < len(self._said):
            said = self._said[place]
            each = torch.full_like(said, self.diversity / self.width, dtype=costs.dtype)
            costs.scatter_add_(1, said, each)
            costs[:, PAD] = 0.0
        return costs
