"""The base class of searches: the loop over words, the limits on captions, the result.

Shapes: B images, N captions per image, L regions, T words, k alternatives, V vocabulary.
"""

import inspect
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor
from torch.nn import functional as F

from captioning.configurable import Configurable
from captioning.data.vocabulary import BOS, EOS, PAD, UNK
from captioning.errors import InputError
from captioning.models.decoder import Decoder, Memory, State, Step

NEVER = (PAD, BOS, UNK)
"""Tokens that no search generates."""

CANDIDATES = 50
"""Words that are tried in place of an unknown one."""


class Decoded(NamedTuple):
    """The captions of each image that a search follows and, in the end, returns, the best first.

    Attributes:
        tokens: words and EOS, then PAD. A caption without EOS fills all T.
        log_probs: of each token; zero at PAD.
        weights: attention for each token; zero at PAD of returned captions.
        scores: a caption's total log probability; of returned captions divided by its length (EOS
            included) to the power of the length penalty. Minus infinity for an empty beam.
    """

    tokens: Int[Tensor, "B N T"]
    log_probs: Float[Tensor, "B N T"]
    weights: Float[Tensor, "B N T L"]
    scores: Float[Tensor, "B N"]

    @classmethod
    def empty(cls, memory: Memory, n: int) -> "Decoded":
        """N captions per image without any word."""
        new, (images, regions, _) = memory.annotations.new_zeros, memory.annotations.shape
        return cls(
            tokens=new((images, n, 0), dtype=torch.long),
            log_probs=new((images, n, 0), dtype=torch.float),
            weights=new((images, n, 0, regions), dtype=torch.float),
            scores=new((images, n), dtype=torch.float),
        )

    @property
    def finished(self) -> Bool[Tensor, "B N"]:
        """Whether a caption has ended."""
        return (self.tokens == EOS).any(dim=2)

    def extended(
        self,
        tokens: Int[Tensor, "B N"],
        log_probs: Float[Tensor, "B N"],
        weights: Float[Tensor, "B N L"],
        parents: Int[Tensor, "B N"] | None = None,
    ) -> "Decoded":
        """The captions, or those with the indices `parents`, followed by one more token."""
        before = self
        if parents is not None:
            before = Decoded(*(take_along_captions(part, parents) for part in self))
        return Decoded(
            torch.cat([before.tokens, tokens[:, :, None]], dim=2),
            torch.cat([before.log_probs, log_probs[:, :, None]], dim=2),
            torch.cat([before.weights, weights[:, :, None]], dim=2),
            before.scores + log_probs,
        )

    def best(self, most: int | None = None) -> "Decoded":
        """The captions of each image with the highest scores, the best first."""
        order = self.scores.argsort(dim=1, descending=True, stable=True)
        return Decoded(*(take_along_captions(part, order)[:, :most] for part in self))


def take_along_captions(
    part: Shaped[Tensor, "B N *X"], places: Int[Tensor, "B N"]
) -> Shaped[Tensor, "B N *X"]:
    """The captions of each image with these indices."""
    images, captions = places.shape
    rows = (places + captions * torch.arange(images, device=places.device)[:, None]).flatten()
    # Much faster than `gather`, which copies number by number.
    return part.flatten(0, 1).index_select(0, rows).view_as(part)


@dataclass(eq=False, kw_only=True)
class Search(Configurable):
    """Chooses the words of captions, within limits that hold for every kind of search.

    The tokens in `NEVER` are not generated, and probabilities are normalised without them.

    Args:
        max_length: maximum number of words of a caption.
        min_length: minimum number of words of a caption.
        no_repeat_ngram: n of the n-grams that may not occur twice in a caption; 0 allows all.
        repeats: whether a caption may say all words again, not only those that people do
            (`Vocabulary.repeatable`).

    Attributes:
        length_penalty: 0 ranks captions by their probability, which favours short ones, 1 by the
            mean log probability of their words.
        draws: whether it draws from PyTorch's generator, so that the order of batches matters.
    """

    limits: ClassVar = {"max_length": range(1, 1001), "min_length": range(1001)}

    max_length: int = 20
    min_length: int = 1
    no_repeat_ngram: int = 0
    repeats: bool = True

    length_penalty = 1.0
    draws = False

    def __post_init__(self) -> None:
        self.once: Int[Tensor, " V"] | None = None
        if self.min_length > self.max_length:
            raise InputError(
                f"min_length {self.min_length} is greater than max_length {self.max_length}"
            )

    @torch.no_grad()
    def __call__(self, decoder: Decoder, memory: Memory) -> Decoded:
        """The captions of every image in memory, the best first."""
        decoded = self.start(memory)
        state = decoder.start(memory, decoded.tokens.shape[1])
        last = torch.where(decoded.scores.isneginf(), PAD, BOS)
        for _ in range(self.max_length):
            decoded, state = self.extend(decoded, decoder.step(last, state, memory))
            finished = decoded.finished
            if finished.all():
                break
            last = decoded.tokens[:, :, -1].masked_fill(finished, PAD)
        are_padding = decoded.tokens == PAD
        lengths = (~are_padding).sum(dim=2).clamp(min=1)  # EOS included
        return decoded._replace(
            weights=decoded.weights.masked_fill(are_padding[..., None], 0.0),
            scores=decoded.scores / lengths**self.length_penalty,
        ).best()

    def for_images(self, images: Iterable[bytes]) -> "Search":
        """The search for a batch of these images, for searches that draw by them.

        Args:
            images: a stable id of each image of the batch, such as its pixels.
        """
        return self

    def for_words(self, once: Sequence[int], device: torch.device | str = "cpu") -> "Search":
        """The search for captions of a vocabulary, of which `Vocabulary.once` is given."""
        if self.repeats:
            return self
        search = copy(self)
        search.once = torch.tensor(once, device=device)
        return search

    @abstractmethod
    def start(self, memory: Memory) -> Decoded:
        """The captions before their first word."""

    @abstractmethod
    def extend(self, decoded: Decoded, step: Step) -> tuple[Decoded, State]:
        """The captions with their next word, and the decoder's state for the word after it."""

    def forbid(self, log_probs: Float[Tensor, "*B V"], tokens: Int[Tensor, "*B t"]) -> None:
        """Set log probabilities of next words that the limits forbid to minus infinity, in place.

        If that leaves no word, the caption may end.
        """
        if self.once is not None:  # PAD, never generated, stands for words that may repeat
            log_probs.scatter_(-1, self.once[tokens], float("-inf"))
        length, n = tokens.shape[-1], self.no_repeat_ngram
        ends_early, may_repeat = length < self.min_length, 0 < n <= length
        if not ends_early and not may_repeat:
            return
        end = log_probs[..., EOS].clone()
        if ends_early:
            log_probs[..., EOS] = float("-inf")
        if may_repeat:  # words that would complete an n-gram for the second time
            begun, last = tokens[..., length - n + 1 :], tokens[..., n - 1 :]
            repeats = torch.ones_like(last, dtype=torch.bool)
            for place in range(n - 1):
                earlier = tokens[..., place : place + last.shape[-1]]
                repeats &= earlier == begun[..., place : place + 1]
            penalties = torch.zeros_like(repeats, dtype=log_probs.dtype)
            log_probs.scatter_add_(-1, last, penalties.masked_fill(repeats, float("-inf")))
        stuck = log_probs.amax(dim=-1).isneginf()
        log_probs[..., EOS] = torch.where(stuck, end, log_probs[..., EOS])

    def replace(self, kind: "type[Search] | None" = None, **changes: Any) -> "Search":
        """A search of the same or another kind with the same settings, except for `changes`.

        Settings that the other kind does not have are dropped.

        Raises:
            InputError: that kind of search has no such setting.
        """
        chosen = kind or type(self)
        known = inspect.signature(chosen).parameters
        for name in changes:
            if name not in known:
                has = ", ".join(known).replace("_", " ")
                raise InputError(f"{chosen.__name__} has no {name.replace('_', ' ')}; it has {has}")
        kept = {name: value for name, value in self.config.items() if name in known}
        return chosen(**(kept | changes))


def generable_log_probs(logits: Float[Tensor, "*B V"]) -> Float[Tensor, "*B V"]:
    """Log probabilities among the words that a search can generate, in a new tensor."""
    precise = torch.promote_types(logits.dtype, torch.float32)
    scores = logits.to(precise, copy=True)
    for token in NEVER:
        scores[..., token] = float("-inf")
    return scores.log_softmax(dim=-1)


def find_alternatives(
    logits: Float[Tensor, "B N T V"], tokens: Int[Tensor, "B N T"], k: int
) -> tuple[Int[Tensor, "B N T k"], Float[Tensor, "B N T k"]]:
    """The k most probable other tokens in the place of each token, and their probabilities.

    The best come first; undefined at PAD.

    Args:
        logits: before each token.
        tokens: the captions as a search returns them.
        k: number of alternatives; fewer if the vocabulary is smaller.
    """
    others = generable_log_probs(logits).scatter_(-1, tokens[..., None], float("-inf"))
    log_probs, words = others.topk(min(k, others.shape[-1] - len(NEVER) - 1), dim=-1)
    return words, log_probs.exp()


@torch.no_grad()
def find_substitutes(
    decoder: Decoder, memory: Memory, tokens: Sequence[int], k: int
) -> list[list[int]]:
    """For each unknown word of a caption of one image, the k likeliest words in its place.

    The words before and after it count, up to the next unknown one.
    """
    found: list[list[int]] = []
    ids = torch.tensor(tokens, device=memory.annotations.device)
    for place in (ids == UNK).nonzero()[:, 0].tolist():
        end = [*tokens, UNK].index(UNK, place + 1)

        def log_probs(captions: Int[Tensor, "N T"]) -> Float[Tensor, "N T V"]:
            read = F.pad(captions, (1, -1), value=BOS)
            return generable_log_probs(decoder.teacher_forcing(memory, read[None])[0])[0]

        chances = log_probs(ids[None, : place + 1])[0, place]
        chances[EOS] = float("-inf")
        words = chances.topk(min(CANDIDATES, len(chances) - len(NEVER) - 1)).indices
        captions = ids[:end].repeat(len(words), 1)
        captions[:, place] = words
        scores = log_probs(captions).gather(2, captions[..., None]).sum(dim=(1, 2))
        best = words[scores.argsort(descending=True)]
        found.append(best[:k].tolist())
        ids[place] = best[0]
    return found
