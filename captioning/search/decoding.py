"""Decoding: greedy, sampled and beam search, for a whole batch of images at once.

Shapes: B images, N captions per image, r of these go on, L regions, T words, V vocabulary.
"""

from abc import abstractmethod
from math import inf

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from captioning.data.vocabulary import EOS, PAD
from captioning.models.decoder import Memory, State, Step
from captioning.numbers import (
    BeamWidth,
    LengthPenalty,
    MaxLength,
    MinLength,
    NgramLength,
    Samples,
    Temperature,
    TopK,
    TopP,
)
from captioning.search.best import best
from captioning.search.hypotheses import Paths, following
from captioning.search.search import Search


class _Walk(Search):
    """Searches in which every caption goes its own way, one word at a time."""

    captions: int

    @abstractmethod
    def _choose(self, scores: Float[Tensor, "r V"]) -> Int[Tensor, "r"]:
        """The next word of every caption that goes on, by the log probabilities of all."""

    def _begun(self, memory: Memory) -> Paths:
        return Paths.empty(memory, self.captions)

    def _extended(self, paths: Paths, step: Step) -> tuple[Paths, State]:
        scores = self.scored(step, paths)
        words = self._choose(scores)[:, None]
        log_probs = scores.gather(1, words)
        paths = paths.extended(
            step.rows.by_image(words).squeeze(2).masked_fill(paths.finished, PAD),
            step.rows.by_image(log_probs).squeeze(2).masked_fill(paths.finished, 0.0),
            step.weights,
        )
        return paths, step.state


class Greedy(_Walk):
    """Always the most probable next word.

    Args:
        max_length: the most words of a caption.
        min_length: the fewest words of a caption.
        no_repeat_ngram: no sequence of so many words occurs twice in a caption; 0 allows all.
    """

    captions = 1

    def __init__(
        self,
        max_length: MaxLength = 20,
        min_length: MinLength = 1,
        no_repeat_ngram: NgramLength = 0,
    ) -> None:
        super().__init__(max_length, min_length, no_repeat_ngram, length_penalty=1.0)

    def _choose(self, scores: Float[Tensor, "r V"]) -> Int[Tensor, "r"]:
        return scores.max(dim=-1).indices  # on CPUs in half the time of `argmax`


class Sampling(_Walk):
    """Words drawn by their probability, so that an image gets different captions.

    Draws from torch's generator: `torch.manual_seed` makes the captions repeatable.

    Args:
        captions: N, how many captions to draw for each image.
        temperature: below one sharpens the distribution, above one flattens it.
        top_k: draw from the k most probable words only; 0 for all.
        top_p: draw from the fewest words that together have this probability (nucleus sampling,
            Holtzman et al. 2020); 1 for all.
        max_length: the most words of a caption.
        min_length: the fewest words of a caption.
        no_repeat_ngram: no sequence of so many words occurs twice in a caption; 0 allows all.
    """

    def __init__(
        self,
        captions: Samples = 1,
        temperature: Temperature = 1.0,
        top_k: TopK = 0,
        top_p: TopP = 1.0,
        max_length: MaxLength = 20,
        min_length: MinLength = 1,
        no_repeat_ngram: NgramLength = 0,
    ) -> None:
        super().__init__(max_length, min_length, no_repeat_ngram, length_penalty=1.0)
        self.captions = captions
        self.temperature = temperature
        self.top_k = top_k
        self.top_p = top_p

    def _choose(self, scores: Float[Tensor, "r V"]) -> Int[Tensor, "r"]:
        probabilities = (scores / self.temperature).softmax(dim=-1)
        if not self.top_k and self.top_p == 1:
            return probabilities.multinomial(1).squeeze(1)
        ranked, words = probabilities.sort(dim=-1, descending=True)
        before = ranked.cumsum(dim=-1) - ranked  # mass of all words ranked above
        ranked = ranked.masked_fill(before >= self.top_p, 0.0)
        if self.top_k:
            ranked[:, self.top_k :] = 0.0
        return words.gather(1, ranked.multinomial(1)).squeeze(1)


class BeamSearch(Search):
    """The best captions found while keeping the `width` best beginnings of each image.

    Beginnings and ended captions are ranked together by their length-normalised log probability;
    an ended caption keeps its place until better ones push it out.

    Args:
        width: N, how many captions to follow, and to return, for each image.
        length_penalty: 0 ranks captions by their probability, which favours short ones, 1 by the
            mean log probability of their words.
        max_length: the most words of a caption.
        min_length: the fewest words of a caption.
        no_repeat_ngram: no sequence of so many words occurs twice in a caption; 0 allows all.
    """

    def __init__(
        self,
        width: BeamWidth = 3,
        length_penalty: LengthPenalty = 1.0,
        max_length: MaxLength = 20,
        min_length: MinLength = 1,
        no_repeat_ngram: NgramLength = 0,
    ) -> None:
        super().__init__(max_length, min_length, no_repeat_ngram, length_penalty)
        self.width = width

    def _begun(self, memory: Memory) -> Paths:
        paths = Paths.empty(memory, self.width)
        paths.totals[:, 1:] = -inf  # beams start equal, so only the first may branch
        return paths

    def _extended(self, paths: Paths, step: Step) -> tuple[Paths, State]:
        scores = self.scored(step, paths)
        going_on = paths.totals.masked_fill(paths.finished, -inf)
        found = best(scores, step.rows, going_on, self.width)
        # An ended caption goes on in one way only, by PAD, at no cost.
        ended = paths.totals.masked_fill(~paths.finished, -inf)
        places = torch.arange(self.width, device=ended.device).expand_as(ended)
        lengths = torch.full_like(paths.lengths, paths.tokens.shape[2] + 1)
        ranks = torch.cat([found.sums, ended], dim=1)
        ranks /= torch.cat([lengths, paths.lengths], dim=1) ** self.length_penalty
        ranks, chosen = ranks.topk(self.width)
        parents = torch.cat([found.captions, places], dim=1).gather(1, chosen)
        words = F.pad(found.words, (0, self.width), value=PAD).gather(1, chosen)
        log_probs = F.pad(found.scores, (0, self.width)).gather(1, chosen)
        missing = ranks.isneginf()  # fewer captions than beams
        words, log_probs = words.masked_fill(missing, EOS), log_probs.masked_fill(missing, -inf)
        follow = following(parents)
        state = {name: follow(part) for name, part in step.state.items()}
        return paths.extended(words, log_probs, follow(step.weights), parents), state
