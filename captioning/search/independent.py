"""Greedy search and sampling, which extend every caption on its own.

Shapes: B images, N captions per image, T words, V vocabulary.
"""

import zlib
from abc import abstractmethod
from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from captioning.data.vocabulary import PAD
from captioning.errors import InputError
from captioning.models.decoder import Memory, State, Step
from captioning.search.search import Decoded, Search, generable_log_probs


class IndependentSearch(Search):
    """Extends each caption by one word at a time, regardless of the others."""

    captions: int

    @abstractmethod
    def choose(self, log_probs: Float[Tensor, "B N V"], position: int) -> Int[Tensor, "B N"]:
        """Choose the next word of every caption; its position counts from 0."""

    def start(self, memory: Memory) -> Decoded:
        return Decoded.empty(memory, self.captions)

    def extend(self, decoded: Decoded, step: Step) -> tuple[Decoded, State]:
        """Extend every caption by its next word, or by PAD if it has ended."""
        log_probs = generable_log_probs(step.logits)
        self.forbid(log_probs, decoded.tokens)
        words = self.choose(log_probs, decoded.tokens.shape[2])
        word_log_probs = log_probs.gather(2, words[:, :, None]).squeeze(2)
        finished = decoded.finished
        words = words.masked_fill(finished, PAD)
        word_log_probs = word_log_probs.masked_fill(finished, 0.0)
        return decoded.extended(words, word_log_probs, step.weights), step.state


class Greedy(IndependentSearch):
    """Chooses the most probable next word."""

    captions = 1

    def choose(self, log_probs: Float[Tensor, "B N V"], position: int) -> Int[Tensor, "B N"]:
        return log_probs.max(dim=-1).indices  # on CPUs in half the time of `argmax`


@dataclass(eq=False)
class Sampling(IndependentSearch):
    """Draws words by their probability, so that captions of an image differ.

    With a seed, an image gets the same captions in any batch, by kernels or without. Without one,
    words are drawn from torch's generator, and `torch.manual_seed` makes the captions repeatable.

    Args:
        captions: N, number of captions to draw per image.
        temperature: sharpens the distribution if below one, flattens it if above.
        top_k: draw from the k most probable words only; 0 for all.
        top_p: draw from the smallest set of words with this total probability (nucleus sampling,
            Holtzman et al. 2020); 1 for all.
        seed: seeds the draws together with the image; None to draw from torch's generator.

    Raises:
        InputError: nothing could be drawn.
    """

    limits: ClassVar = {"captions": range(1, 1001)}

    captions: int = 1
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.temperature <= 0 or self.top_p <= 0:
            raise InputError("temperature and top_p are greater than 0")
        self.draws = self.seed is None
        self._random: Float[Tensor, "B N T"] | None = None  # a number for every word

    def for_images(self, images: Iterable[bytes]) -> "Sampling":
        if self.seed is None:
            return self
        search, shape = copy(self), (self.captions, self.max_length)
        seeds = [zlib.crc32(image, self.seed) for image in images]
        search._random = torch.stack(
            [torch.rand(shape, generator=torch.Generator().manual_seed(seed)) for seed in seeds]
        )
        return search

    def choose(self, log_probs: Float[Tensor, "B N V"], position: int) -> Int[Tensor, "B N"]:
        probabilities = (log_probs.flatten(0, -2) / self.temperature).softmax(dim=-1)
        if self.top_k or self.top_p < 1:
            ranked, words = probabilities.sort(dim=-1, descending=True)
            mass_above = ranked.cumsum(dim=-1) - ranked  # probability of the words ranked above
            ranked = ranked.masked_fill(mass_above >= self.top_p, 0.0)
            if self.top_k:
                ranked[:, self.top_k :] = 0.0
            if self._random is None:
                return words.gather(1, ranked.multinomial(1)).view(log_probs.shape[:-1])
            probabilities = torch.zeros_like(ranked).scatter_(1, words, ranked)
        if self._random is None:
            return probabilities.multinomial(1).view(log_probs.shape[:-1])
        self._random = self._random.to(log_probs.device)  # once, not at every word
        # Inverse transform sampling, with words in the order of the vocabulary: probabilities that
        # differ in their last digits, as those of kernels do, hardly ever give another word.
        cumulative, draws = probabilities.cumsum(dim=-1), self._random[..., position].flatten()
        # Clamped, so that no draw is rounded up to the end.
        positions = cumulative[:, -1:] * draws[:, None].clamp(max=1 - 2**-20)
        return torch.searchsorted(cumulative, positions, right=True).view(log_probs.shape[:-1])
