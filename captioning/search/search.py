"""The base class of searches, with the loop over words and the limits on captions.

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
from captioning.data.vocabulary import BOS, EOS, PAD, UNK, Vocabulary
from captioning.errors import InputError
from captioning.models.decoder import Decoder, Memory, State, Step

NEVER = (PAD, BOS, UNK)
"""Tokens that no search generates."""

MAX_SUBSTITUTES = 50
"""Maximum number of words that are tried in place of an unknown one."""


class Decoded(NamedTuple):
    """Captions of each image, during a search and as its result, the best first.

    Attributes:
        tokens: words and EOS, then PAD. A caption without EOS fills all T.
        log_probs: of each token; zero at PAD.
        weights: attention for each token; zero at PAD of returned captions.
        scores: a caption's total log probability, for returned captions divided by its length (EOS
            included) to the power of the length penalty. Minus infinity for an empty beam.
    """

    tokens: Int[Tensor, "B N T"]
    log_probs: Float[Tensor, "B N T"]
    weights: Float[Tensor, "B N T L"]
    scores: Float[Tensor, "B N"]

    @classmethod
    def empty(cls, memory: Memory, n: int) -> "Decoded":
        """N captions per image without words."""
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
        """Extend the captions, or those with the indices `parents`, by one token."""
        captions = self
        if parents is not None:
            captions = Decoded(*(take_along_captions(part, parents) for part in self))
        return Decoded(
            torch.cat([captions.tokens, tokens[:, :, None]], dim=2),
            torch.cat([captions.log_probs, log_probs[:, :, None]], dim=2),
            torch.cat([captions.weights, weights[:, :, None]], dim=2),
            captions.scores + log_probs,
        )

    def best(self, count: int | None = None) -> "Decoded":
        """The captions of each image with the highest scores, the best first."""
        order = self.scores.argsort(dim=1, descending=True, stable=True)
        return Decoded(*(take_along_captions(part, order)[:, :count] for part in self))


def take_along_captions(
    tensor: Shaped[Tensor, "B N *X"], indices: Int[Tensor, "B N"]
) -> Shaped[Tensor, "B N *X"]:
    """Select captions of each image by their indices."""
    images, captions = indices.shape
    rows = (indices + captions * torch.arange(images, device=indices.device)[:, None]).flatten()
    # Much faster than `gather`, which copies number by number.
    return tensor.flatten(0, 1).index_select(0, rows).view_as(tensor)


@dataclass(eq=False, kw_only=True)
class Search(Configurable):
    """Generates captions, within limits that every kind of search shares.

    The tokens in `NEVER` are not generated, and probabilities are normalised without them.

    Args:
        max_length: maximum number of words of a caption.
        min_length: minimum number of words of a caption.
        no_repeat_ngram: n of the n-grams that may not occur twice in a caption; 0 allows all.
        repeats: whether captions may repeat any word, not only those that people repeat
            (`Vocabulary.repeatable`). A word that no caption says twice in a row
            (`Vocabulary.immediate_repeats`) never follows itself.

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
        # Of each token, the word that it forbids later, or next: itself, or PAD for none.
        self.unrepeatable_ids: Int[Tensor, " V"] | None = None
        self.nonadjacent_ids: Int[Tensor, " V"] | None = None
        if self.min_length > self.max_length:
            raise InputError(
                f"min_length {self.min_length} is greater than max_length {self.max_length}"
            )

    @torch.no_grad()
    def __call__(self, decoder: Decoder, memory: Memory) -> Decoded:
        """Generate captions of every image in memory, the best first."""
        decoded = self.start(memory)
        state = decoder.start(memory, decoded.tokens.shape[1])
        last = torch.where(decoded.scores.isneginf(), PAD, BOS)  # an empty beam reads PAD
        for _ in range(self.max_length):
            decoded, state = self.extend(decoded, decoder.step(last, state, memory))
            finished = decoded.finished
            if finished.all():
                break
            last = decoded.tokens[:, :, -1].masked_fill(finished, PAD)
        is_padding = decoded.tokens == PAD
        lengths = (~is_padding).sum(dim=2).clamp(min=1)  # EOS included
        return decoded._replace(
            weights=decoded.weights.masked_fill(is_padding[..., None], 0.0),
            scores=decoded.scores / lengths**self.length_penalty,
        ).best()

    def for_images(self, images: Iterable[bytes]) -> "Search":
        """The search for a batch of images, which seed the draws of some searches.

        Args:
            images: a stable id of each image of the batch, such as its pixels.
        """
        return self

    def for_words(self, vocabulary: Vocabulary, device: torch.device | str = "cpu") -> "Search":
        """The search for a vocabulary, whose words may be repeated as people repeat them."""
        search = copy(self)
        if not self.repeats:
            search.unrepeatable_ids = torch.tensor(vocabulary.unrepeatable_ids, device=device)
        if vocabulary.immediate_repeats is not None:
            search.nonadjacent_ids = torch.tensor(vocabulary.nonadjacent_ids, device=device)
        return search

    @abstractmethod
    def start(self, memory: Memory) -> Decoded:
        """The captions before their first word."""

    @abstractmethod
    def extend(self, decoded: Decoded, step: Step) -> tuple[Decoded, State]:
        """Extend captions by one word; also returns the decoder's state after it."""

    def forbid(self, log_probs: Float[Tensor, "*B V"], tokens: Int[Tensor, "*B t"]) -> None:
        """Set the log probabilities of forbidden next words to minus infinity, in place.

        If no word is left, the caption may end.
        """
        # PAD, which is never generated, stands for words that may repeat.
        if self.unrepeatable_ids is not None:
            log_probs.scatter_(-1, self.unrepeatable_ids[tokens], float("-inf"))
        if self.nonadjacent_ids is not None:
            log_probs.scatter_(-1, self.nonadjacent_ids[tokens[..., -1:]], float("-inf"))
        length, n = tokens.shape[-1], self.no_repeat_ngram
        is_too_short, has_ngrams = length < self.min_length, 0 < n <= length
        if not is_too_short and not has_ngrams:
            return
        end = log_probs[..., EOS].clone()
        if is_too_short:
            log_probs[..., EOS] = float("-inf")
        if has_ngrams:  # words that would complete an n-gram for the second time
            prefix, last = tokens[..., length - n + 1 :], tokens[..., n - 1 :]
            repeats = torch.ones_like(last, dtype=torch.bool)
            for index in range(n - 1):
                earlier = tokens[..., index : index + last.shape[-1]]
                repeats &= earlier == prefix[..., index : index + 1]
            penalties = torch.zeros_like(repeats, dtype=log_probs.dtype)
            log_probs.scatter_add_(-1, last, penalties.masked_fill(repeats, float("-inf")))
        has_no_word = log_probs.amax(dim=-1).isneginf()
        log_probs[..., EOS] = torch.where(has_no_word, end, log_probs[..., EOS])

    def replace(self, kind: "type[Search] | None" = None, **changes: Any) -> "Search":
        """A search of the same or another class with the same settings, except for `changes`.

        Settings that the other class does not have are dropped.

        Raises:
            InputError: the class has no such setting.
        """
        search_class = kind or type(self)
        parameters = inspect.signature(search_class).parameters
        for name in changes:
            if name not in parameters:
                setting, names = name.replace("_", " "), ", ".join(parameters).replace("_", " ")
                raise InputError(f"{search_class.__name__} has no {setting}; it has {names}")
        settings = {name: value for name, value in self.config.items() if name in parameters}
        return search_class(**(settings | changes))


def generable_log_probs(logits: Float[Tensor, "*B V"]) -> Float[Tensor, "*B V"]:
    """Log probabilities over the words that a search can generate, as a new tensor."""
    precise = torch.promote_types(logits.dtype, torch.float32)
    scores = logits.to(precise, copy=True)
    for token in NEVER:
        scores[..., token] = float("-inf")
    return scores.log_softmax(dim=-1)


def token_log_probs(
    logits: Float[Tensor, "B N T V"], tokens: Int[Tensor, "B N T"]
) -> Float[Tensor, "B N T"]:
    """The log probability of each token, among the words that a search can generate; 0 at PAD.

    Args:
        logits: the logits before each token.
        tokens: the captions, up to EOS and then PAD.
    """
    log_probs = generable_log_probs(logits).gather(3, tokens[..., None]).squeeze(3)
    return log_probs.masked_fill(tokens == PAD, 0.0)


def find_alternatives(
    logits: Float[Tensor, "B N T V"], tokens: Int[Tensor, "B N T"], k: int
) -> tuple[Int[Tensor, "B N T k"], Float[Tensor, "B N T k"]]:
    """Find the k most probable other tokens at each position, and their probabilities.

    The best come first; undefined at PAD.

    Args:
        logits: scores of each token.
        tokens: the captions, as a search returns them.
        k: number of alternatives; fewer if the vocabulary is smaller.
    """
    log_probs = generable_log_probs(logits).scatter_(-1, tokens[..., None], float("-inf"))
    count = min(k, log_probs.shape[-1] - len(NEVER) - 1)
    word_log_probs, words = log_probs.topk(count, dim=-1)
    return words, word_log_probs.exp()


@torch.no_grad()
def find_substitutes(
    decoder: Decoder, memory: Memory, tokens: Sequence[int], *, k: int
) -> list[list[int]]:
    """Find the k most probable words in place of each unknown word of a caption of one image.

    They depend on the words before and after, up to the next unknown one.
    """
    substitutes: list[list[int]] = []
    ids = torch.tensor(tokens, device=memory.annotations.device)
    for position in (ids == UNK).nonzero()[:, 0].tolist():
        end = [*tokens, UNK].index(UNK, position + 1)

        def log_probs(captions: Int[Tensor, "N T"]) -> Float[Tensor, "N T V"]:
            inputs = F.pad(captions, (1, -1), value=BOS)
            return generable_log_probs(decoder.teacher_forcing(memory, inputs[None])[0])[0]

        word_log_probs = log_probs(ids[None, : position + 1])[0, position]
        word_log_probs[EOS] = float("-inf")
        count = min(MAX_SUBSTITUTES, len(word_log_probs) - len(NEVER) - 1)
        words = word_log_probs.topk(count).indices
        captions = ids[:end].repeat(len(words), 1)
        captions[:, position] = words
        scores = log_probs(captions).gather(2, captions[..., None]).sum(dim=(1, 2))
        best_words = words[scores.argsort(descending=True)]
        substitutes.append(best_words[:k].tolist())
        ids[position] = best_words[0]
    return substitutes
