"""The base class of searches: the loop over words, the limits on captions, the result.

Shapes: B images, N captions per image, L regions, T words, V vocabulary.
"""

import inspect
from abc import abstractmethod
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from captioning.configurable import Configurable
from captioning.data.vocabulary import BOS, EOS, PAD, UNK
from captioning.errors import InputError
from captioning.models.decoder import Decoder, Memory, State, Step
from captioning.numbers import LengthPenalty, MaxLength, MinLength, NgramLength
from captioning.search.hypotheses import Hypotheses, take_along_captions

MOST_NUMBERS = 2**27
"""The most probabilities, or attention weights, of a batch's captions: half a gigabyte."""

MOST_WORDS = 2**18
"""The most words of a batch's captions: a minute's work for a small model."""

NEVER = (PAD, BOS, UNK)
"""Tokens that no search generates."""


class Decoded(NamedTuple):
    """The captions that a search found, the best of each image first.

    Attributes:
        tokens: words and EOS, then PAD. A caption without EOS fills all T.
        log_probs: of each token; zero at PAD.
        weights: attention for each token; zero at PAD.
        scores: a caption's total log probability divided by its length (EOS included) to the power
            of the length penalty; minus infinity for a beam that could not be filled.
    """

    tokens: Int[Tensor, "B N T"]
    log_probs: Float[Tensor, "B N T"]
    weights: Float[Tensor, "B N T L"]
    scores: Float[Tensor, "B N"]


class Search(Configurable):
    """Chooses the words of captions, within limits that hold for every kind of search.

    The tokens in `NEVER` are not generated, and probabilities are normalised without them.

    Args:
        max_length: maximum number of words of a caption.
        min_length: minimum number of words of a caption.
        no_repeat_ngram: n of the n-grams that may not occur twice in a caption; 0 allows all.
        length_penalty: 0 ranks captions by their probability, which favours short ones, 1 by the
            mean log probability of their words.

    Raises:
        InputError: a limit is out of its range.
    """

    def __init__(
        self,
        max_length: MaxLength,
        min_length: MinLength,
        no_repeat_ngram: NgramLength,
        length_penalty: LengthPenalty,
    ) -> None:
        if min_length > max_length:
            raise InputError(
                f"min_length {min_length} is greater than max_length {max_length}; "
                "set 0 <= min_length <= max_length"
            )
        self.max_length = max_length
        self.min_length = min_length
        self.no_repeat_ngram = no_repeat_ngram
        self.length_penalty = length_penalty

    @torch.no_grad()
    def __call__(self, decoder: Decoder, memory: Memory) -> Decoded:
        """The captions of every image in memory."""
        self.check_memory(decoder, memory)
        hypotheses = self.begin(memory)
        state = decoder.start(memory, hypotheses.tokens.shape[1])
        for _ in range(self.max_length):
            step = decoder.step(hypotheses.last, state, memory)
            hypotheses, state = self.extend(hypotheses, step)
            if hypotheses.finished.all():
                break
        return self.rank(hypotheses)

    @property
    def draws(self) -> bool:
        """Whether it draws from PyTorch's generator, so that the order of batches matters."""
        return self.config.get("seed", 0) is None

    def check_memory(self, decoder: Decoder, memory: Memory) -> None:
        """Raise InputError if a batch's captions would fill a computer's memory, or never end."""
        images, regions = memory.annotations.shape[:2]
        captions = getattr(self, "captions", 0) or getattr(self, "width", 1)
        numbers = images * captions * max(decoder.vocab_size, self.max_length * regions)
        if numbers > MOST_NUMBERS or images * captions * self.max_length > MOST_WORDS:
            raise InputError(
                f"{captions:,} captions for each of {images} images need too much memory or time "
                f"with {decoder.vocab_size:,} words and up to {self.max_length} words each; ask "
                "for fewer captions, shorter ones, or smaller batches"
            )

    def for_images(self, images: Iterable[bytes]) -> "Search":
        """The search for a batch of these images, for searches that draw by them.

        Args:
            images: what tells each image of the batch from others, such as its pixels.
        """
        return self

    @abstractmethod
    def begin(self, memory: Memory) -> Hypotheses:
        """The captions before their first word."""

    @abstractmethod
    def extend(self, hypotheses: Hypotheses, step: Step) -> tuple[Hypotheses, State]:
        """The captions with their next word, and the decoder's state for the word after it."""

    def forbid(self, log_probs: Float[Tensor, "*B V"], tokens: Int[Tensor, "*B t"]) -> None:
        """Set log probabilities of next words that the limits forbid to minus infinity, in place.

        If that leaves no word, the caption may end.
        """
        ends_early = tokens.shape[-1] < self.min_length
        if not ends_early and not self.no_repeat_ngram:
            return
        end = log_probs[..., EOS].clone()
        if ends_early:
            log_probs[..., EOS] = float("-inf")
        if self.no_repeat_ngram:
            _forbid_repeats(log_probs, tokens, self.no_repeat_ngram)
        stuck = log_probs.amax(dim=-1).isneginf()
        log_probs[..., EOS] = torch.where(stuck, end, log_probs[..., EOS])

    def rank(self, hypotheses: Hypotheses) -> Decoded:
        """The captions of each image by their score, the best first."""
        scores = hypotheses.totals / hypotheses.lengths.clamp(min=1) ** self.length_penalty
        order = scores.argsort(dim=1, descending=True, stable=True)
        parts = hypotheses.tokens, hypotheses.log_probs, hypotheses.weights, scores
        return Decoded(*(take_along_captions(part, order) for part in parts))

    def replace(self, kind: "type[Search] | None" = None, **changes: Any) -> "Search":
        """A search of the same or another kind with the same settings, except for `changes`.

        Settings that the other kind does not have are dropped.

        Raises:
            InputError: that kind of search has no such setting, or its value is out of range.
        """
        chosen = kind or type(self)
        known = inspect.signature(chosen).parameters
        unknown = [name for name in changes if name not in known]
        if unknown:
            raise InputError(
                f"{chosen.__name__} has no {unknown[0].replace('_', ' ')}; it has "
                + ", ".join(name.replace("_", " ") for name in known)
            )
        kept = {name: value for name, value in self.config.items() if name in known}
        return chosen(**(kept | changes))


def generable_log_probs(logits: Float[Tensor, "*B V"]) -> Float[Tensor, "*B V"]:
    """Log probabilities among the words that a search can generate, in a new tensor."""
    precise = torch.promote_types(logits.dtype, torch.float32)
    scores = logits.to(precise, copy=True)
    for token in NEVER:
        scores[..., token] = float("-inf")
    return scores.log_softmax(dim=-1)


def _forbid_repeats(log_probs: Float[Tensor, "*B V"], tokens: Int[Tensor, "*B t"], n: int) -> None:
    """Forbid, in place, the words that would complete an n-gram for the second time."""
    length = tokens.shape[-1]
    if length < n:
        return
    grams, begun = length - n + 1, tokens[..., length - n + 1 :]
    repeats = torch.ones_like(tokens[..., :grams], dtype=torch.bool)
    for place in range(n - 1):  # one at a time, as all would take n times the memory
        repeats &= tokens[..., place : place + grams] == begun[..., place : place + 1]
    penalties = torch.zeros_like(repeats, dtype=log_probs.dtype)
    log_probs.scatter_add_(-1, tokens[..., n - 1 :], penalties.masked_fill(repeats, float("-inf")))
