"""Searches that extend every caption on its own: greedy search and sampling.

Shapes: B images, N captions per image, V vocabulary.
"""

import zlib
from abc import abstractmethod
from collections.abc import Iterable
from copy import copy
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from captioning.data.vocabulary import PAD
from captioning.models.decoder import Memory, State, Step
from captioning.numbers import (
    MaxLength,
    MinLength,
    NgramLength,
    Samples,
    Seed,
    Temperature,
    TopK,
    TopP,
)
from captioning.search.hypotheses import Hypotheses
from captioning.search.search import Search, generable_log_probs


class IndependentSearch(Search):
    """Extends each caption by one word at a time, regardless of the others."""

    captions: int

    @abstractmethod
    def choose(
        self, log_probs: Float[Tensor, "*B V"], draw: Float[Tensor, "*B"] | None = None
    ) -> Int[Tensor, "*B"]:
        """The next word of every caption.

        Args:
            log_probs: of all words.
            draw: `Hypotheses.draw`.
        """

    def begin(self, memory: Memory) -> Hypotheses:
        """N empty captions per image."""
        return Hypotheses.empty(memory, self.captions)

    def extend(self, hypotheses: Hypotheses, step: Step) -> tuple[Hypotheses, State]:
        """Every caption with its next word; PAD if it has ended."""
        log_probs = generable_log_probs(step.logits)
        self.forbid(log_probs, hypotheses.tokens)
        words = self.choose(log_probs, hypotheses.draw)
        own = log_probs.gather(2, words[:, :, None]).squeeze(2)
        ended = hypotheses.finished
        words, own = words.masked_fill(ended, PAD), own.masked_fill(ended, 0.0)
        return hypotheses.extend(words, own, step.weights), step.state


class Greedy(IndependentSearch):
    """Always chooses the most probable next word.

    Args:
        max_length: maximum number of words of a caption.
        min_length: minimum number of words of a caption.
        no_repeat_ngram: n of the n-grams that may not occur twice in a caption; 0 allows all.
    """

    captions = 1

    def __init__(
        self,
        max_length: MaxLength = 20,
        min_length: MinLength = 1,
        no_repeat_ngram: NgramLength = 0,
    ) -> None:
        super().__init__(max_length, min_length, no_repeat_ngram, length_penalty=1.0)

    def choose(
        self, log_probs: Float[Tensor, "*B V"], draw: Float[Tensor, "*B"] | None = None
    ) -> Int[Tensor, "*B"]:
        """The most probable word."""
        return log_probs.max(dim=-1).indices  # on CPUs in half the time of `argmax`


class Sampling(IndependentSearch):
    """Draws words by their probability, so that an image gets different captions.

    With a seed, an image gets the same captions in any batch, by kernels or without. Without one,
    words are drawn from torch's generator, and `torch.manual_seed` makes the captions repeatable.

    Args:
        captions: N, number of captions to draw per image.
        temperature: below one sharpens the distribution, above one flattens it.
        top_k: draw from the k most probable words only; 0 for all.
        top_p: draw from the smallest set of words with this total probability (nucleus sampling,
            Holtzman et al. 2020); 1 for all.
        max_length: maximum number of words of a caption.
        min_length: minimum number of words of a caption.
        no_repeat_ngram: n of the n-grams that may not occur twice in a caption; 0 allows all.
        seed: draw by this number and the image alone; None to draw from torch's generator.
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
        seed: Seed | None = None,
    ) -> None:
        super().__init__(max_length, min_length, no_repeat_ngram, length_penalty=1.0)
        self.captions = captions
        self.seed = seed
        self.image_seeds: list[int] | None = None
        self.temperature = temperature
        self.top_k = top_k
        self.top_p = top_p

    def for_images(self, images: Iterable[bytes]) -> "Sampling":
        """The search for a batch of these images."""
        if self.seed is None:
            return self
        search = copy(self)
        search.image_seeds = [zlib.crc32(image, self.seed) for image in images]
        return search

    def replace(self, kind: type[Search] | None = None, **changes: Any) -> Search:
        """See `Search.replace`; for the same images."""
        search = super().replace(kind, **changes)
        if isinstance(search, Sampling):
            search.image_seeds = self.image_seeds
        return search

    def begin(self, memory: Memory) -> Hypotheses:
        """N empty captions per image, with random numbers of each image's own."""
        if self.image_seeds is None:
            return super().begin(memory)
        draws = [
            torch.rand(
                self.captions, self.max_length, generator=torch.Generator().manual_seed(seed)
            )
            for seed in self.image_seeds
        ]
        return Hypotheses.empty(memory, self.captions, torch.stack(draws))

    def choose(
        self, log_probs: Float[Tensor, "*B V"], draw: Float[Tensor, "*B"] | None = None
    ) -> Int[Tensor, "*B"]:
        """A word drawn for each caption."""
        flat = log_probs.flatten(0, -2)
        probabilities = (flat / self.temperature).softmax(dim=-1)
        if draw is not None:
            return _drawn(self._likely(probabilities), draw.flatten()).view(log_probs.shape[:-1])
        if not self.top_k and self.top_p == 1:
            return probabilities.multinomial(1).view(log_probs.shape[:-1])
        ranked, words = self._ranked(probabilities)
        return words.gather(1, ranked.multinomial(1)).view(log_probs.shape[:-1])

    def _likely(self, probabilities: Float[Tensor, "r V"]) -> Float[Tensor, "r V"]:
        """The probabilities of the words that may be drawn; zero for the others."""
        if not self.top_k and self.top_p == 1:
            return probabilities
        ranked, words = self._ranked(probabilities)
        return torch.zeros_like(probabilities).scatter_(1, words, ranked)

    def _ranked(
        self, probabilities: Float[Tensor, "r V"]
    ) -> tuple[Float[Tensor, "r V"], Int[Tensor, "r V"]]:
        """The probabilities in descending order, zero if never to be drawn, and their words."""
        ranked, words = probabilities.sort(dim=-1, descending=True)
        before = ranked.cumsum(dim=-1) - ranked  # total probability of the words ranked above
        ranked = ranked.masked_fill(before >= self.top_p, 0.0)
        if self.top_k:
            ranked[:, self.top_k :] = 0.0
        return ranked, words


def _drawn(probabilities: Float[Tensor, "r V"], draw: Float[Tensor, "r"]) -> Int[Tensor, "r"]:
    """The word of each row in whose share of the total probability the random number lies.

    Words keep the vocabulary's order, so that probabilities which differ in their last digits, as
    those of kernels do, hardly ever give another word.
    """
    ends = probabilities.cumsum(dim=-1)
    places = ends[:, -1:] * draw[:, None].clamp(max=1 - 2**-20)  # not rounded up to the end
    return torch.searchsorted(ends, places, right=True)[:, 0]
