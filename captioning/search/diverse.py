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
    """Runs beam searches one after another, each penalised for words of earlier groups.

    Vijayakumar et al. 2018, "Diverse Beam Search for Improved Description of Complex Scenes", with
    Hamming diversity: a word costs `diversity` times the share of captions that have it at this
    position, summed over earlier groups. (The paper counts the captions, so costs grow with the
    width.) Groups rank captions by log probabilities less costs; returned scores are without costs.
    Each group gives its best caption that no earlier group has given.

    Args:
        groups: G, number of captions to return per image.
        diversity: cost of a word in nats; 0 is plain beam search.
    """

    limits: ClassVar = {"groups": range(1, 1001)}

    groups: int = 3
    diversity: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        self._earlier_words: list[Int[Tensor, "B k"]] = []  # words of earlier groups by position

    @torch.no_grad()
    def __call__(self, decoder: Decoder, memory: Memory) -> Decoded:
        group = copy(self)  # not shared with other calls
        group._earlier_words = []
        group_captions = [
            super(DiverseBeamSearch, group).__call__(decoder, memory) for _ in range(self.groups)
        ]
        length = max(decoded.tokens.shape[2] for decoded in group_captions)
        best_captions: list[Decoded] = []
        for tokens, log_probs, weights, scores in group_captions:
            padding = length - tokens.shape[2]
            tokens = F.pad(tokens, (0, padding), value=PAD)
            log_probs = F.pad(log_probs, (0, padding))
            weights = F.pad(weights, (0, 0, 0, padding))
            for earlier in best_captions:
                scores = scores.masked_fill((tokens == earlier.tokens).all(dim=2), -inf)
            best_captions.append(Decoded(tokens, log_probs, weights, scores).best(1))
        captions = Decoded(*(torch.cat(parts, dim=1) for parts in zip(*best_captions, strict=True)))
        lengths = (captions.tokens != PAD).sum(dim=2)
        scores = captions.log_probs.sum(dim=2) / lengths**self.length_penalty
        scores = scores.masked_fill(captions.scores.isneginf(), -inf)
        return captions._replace(scores=scores).best()

    def gains(
        self, decoded: Decoded, log_probs: Float[Tensor, "B N V"]
    ) -> Iterable[Float[Tensor, "B N V"]]:
        costs = self._costs(decoded, log_probs.shape[2])
        return [gains - costs[:, None] for gains in super().gains(decoded, log_probs)]

    def extend(self, decoded: Decoded, step: Step) -> tuple[Decoded, State]:
        """Follow the best captions of the group, and store their words for later groups."""
        extended, state = super().extend(decoded, step)
        words, position = extended.tokens[:, :, -1], decoded.tokens.shape[2]
        costs = self._costs(decoded, step.logits.shape[2]).gather(1, words)
        if position == len(self._earlier_words):
            self._earlier_words.append(words)
        else:
            self._earlier_words[position] = torch.cat([self._earlier_words[position], words], dim=1)
        return extended._replace(scores=extended.scores - costs), state

    def _costs(self, decoded: Decoded, vocabulary: int) -> Float[Tensor, "B V"]:
        """Cost of each next word; zero for PAD after finished captions."""
        position = decoded.tokens.shape[2]
        costs = decoded.scores.new_zeros(len(decoded.scores), vocabulary)
        if position < len(self._earlier_words):
            words = self._earlier_words[position]
            word_costs = torch.full_like(words, self.diversity / self.width, dtype=costs.dtype)
            costs.scatter_add_(1, words, word_costs)
            costs[:, PAD] = 0.0
        return costs
