"""What every search over words has in common: limits, the captions so far, the result.

Shapes: B images, N captions per image, L regions, T words, V vocabulary.
"""

import inspect
from abc import abstractmethod
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from captioning.configurable import Configurable
from captioning.data.vocabulary import BOS, EOS, PAD, UNK
from captioning.errors import InputError
from captioning.models.decoder import Decoder, Memory


class Decoded(NamedTuple):
    """The captions that a search found, the best of each image first.

    Attributes:
        tokens: words and EOS, PAD after it. A caption that met no EOS fills all T.
        log_probs: of each of these tokens; zero at PAD.
        weights: attention while each token was written.
        scores: sum of a caption's log probabilities over its length (EOS counts) to the power of
            the length penalty; minus infinity for a beam that could not be filled.
    """

    tokens: Int[Tensor, "B N T"]
    log_probs: Float[Tensor, "B N T"]
    weights: Float[Tensor, "B N T L"]
    scores: Float[Tensor, "B N"]


class Paths(NamedTuple):
    """The captions so far, and what is needed to go on with them."""

    tokens: Int[Tensor, "B N t"]
    log_probs: Float[Tensor, "B N t"]
    weights: Float[Tensor, "B N t L"]
    finished: Bool[Tensor, "B N"]

    @classmethod
    def empty(cls, memory: Memory, n: int) -> "Paths":
        """N captions per image without a word yet."""
        batch, regions = memory.keys.shape[:2]
        new = memory.keys.new_zeros
        return cls(
            tokens=new((batch, n, 0), dtype=torch.long),
            log_probs=new((batch, n, 0), dtype=torch.float),
            weights=new((batch, n, 0, regions), dtype=torch.float),
            finished=new((batch, n), dtype=torch.bool),
        )

    @property
    def last(self) -> Int[Tensor, "B N"]:
        """What the decoder reads next."""
        if self.tokens.shape[2]:
            return self.tokens[:, :, -1]
        return torch.full_like(self.finished, BOS, dtype=torch.long)

    @property
    def lengths(self) -> Int[Tensor, "B N"]:
        """Tokens of each caption, EOS counted."""
        return (self.tokens != PAD).sum(dim=2)

    def scores(self, length_penalty: float) -> Float[Tensor, "B N"]:
        """Length-normalised log probabilities, as in `Decoded`."""
        return self.log_probs.sum(dim=2) / self.lengths.clamp(min=1) ** length_penalty

    def extended(
        self,
        tokens: Int[Tensor, "B N"],
        log_probs: Float[Tensor, "B N"],
        weights: Float[Tensor, "B N L"],
    ) -> "Paths":
        """The captions with one token more."""
        return Paths(
            torch.cat([self.tokens, tokens[:, :, None]], dim=2),
            torch.cat([self.log_probs, log_probs[:, :, None]], dim=2),
            torch.cat([self.weights, weights[:, :, None]], dim=2),
            self.finished | (tokens == EOS),
        )

    def followed(self, parents: Int[Tensor, "B N"]) -> "Paths":
        """For each place, the caption at its parent's place."""
        return Paths(*(follow(part, parents) for part in self))


def follow(part: Tensor, parents: Int[Tensor, "B N"]) -> Tensor:
    """The rows of `parents` along N: (B, N, ...) -> (B, N, ...)."""
    index = parents.view(*parents.shape, *(1,) * (part.dim() - 2))
    return part.gather(1, index.expand(-1, -1, *part.shape[2:]))


class Search(Configurable):
    """How words are chosen, within limits that hold for every kind of search.

    PAD, BOS and UNK are never generated. Calling a search with a decoder and its memory of the
    images gives the captions.

    Args:
        max_length: the most words of a caption.
        min_length: the fewest words of a caption.
        no_repeat_ngram: no sequence of so many words occurs twice in a caption; 0 allows all.
        length_penalty: 0 ranks captions by their probability, which favours short ones, 1 by the
            mean log probability of their words.

    Raises:
        InputError: a limit makes no sense.
    """

    def __init__(
        self, max_length: int, min_length: int, no_repeat_ngram: int, length_penalty: float
    ) -> None:
        if max_length < 1 or not 0 <= min_length <= max_length or no_repeat_ngram < 0:
            raise InputError(
                f"lengths from {min_length} to {max_length} words with no_repeat_ngram "
                f"{no_repeat_ngram} cannot be searched; give 0 <= min_length <= max_length"
            )
        self.max_length = max_length
        self.min_length = min_length
        self.no_repeat_ngram = no_repeat_ngram
        self.length_penalty = length_penalty

    @abstractmethod
    def __call__(self, decoder: Decoder, memory: Memory) -> Decoded:
        """The captions of every image in memory."""

    def changed(self, kind: type["Search"] | None = None, **changes: Any) -> "Search":
        """The same limits with some changed, in a search of the same or another kind.

        Raises:
            InputError: that kind of search has no such setting, or its value makes no sense.
        """
        kind = kind or type(self)
        known = inspect.signature(kind).parameters
        unknown = [name for name in changes if name not in known]
        if unknown:
            raise InputError(
                f"{kind.__name__} has no {unknown[0].replace('_', ' ')}; it has "
                + ", ".join(name.replace("_", " ") for name in known)
            )
        kept = {name: value for name, value in self.config.items() if name in known}
        return kind(**(kept | changes))

    def log_probs(self, logits: Float[Tensor, "B N V"], paths: Paths) -> Float[Tensor, "B N V"]:
        """Log probabilities of the next word; minus infinity where the limits forbid it."""
        never = torch.tensor([PAD, BOS, UNK], device=logits.device)
        precision = torch.promote_types(logits.dtype, torch.float32)
        possible = logits.index_fill(-1, never, float("-inf"))
        log_probs = possible.log_softmax(dim=-1, dtype=precision)
        allowed = log_probs.clone()
        if paths.tokens.shape[2] < self.min_length:
            allowed[:, :, EOS] = float("-inf")
        if self.no_repeat_ngram:
            self._forbid_repeats(allowed, paths.tokens)
        stuck = allowed.isneginf().all(dim=-1)  # no word is left: end, whatever the limits say
        allowed[:, :, EOS] = torch.where(stuck, log_probs[:, :, EOS], allowed[:, :, EOS])
        return allowed

    def _forbid_repeats(
        self, log_probs: Float[Tensor, "B N V"], tokens: Int[Tensor, "B N t"]
    ) -> None:
        """Forbid, in place, the words that would complete an n-gram for the second time."""
        n = self.no_repeat_ngram
        if tokens.shape[2] < n:
            return
        grams = tokens.unfold(2, n, 1)  # (B, N, t - n + 1, n)
        begun = tokens[:, :, None, tokens.shape[2] - n + 1 :]
        repeats = (grams[..., :-1] == begun).all(dim=-1)
        forbidden = torch.zeros_like(log_probs, dtype=torch.long)
        forbidden.scatter_add_(2, grams[..., -1], repeats.long())
        log_probs.masked_fill_(forbidden > 0, float("-inf"))

    def decoded(self, paths: Paths, scores: Float[Tensor, "B N"]) -> Decoded:
        """The captions ranked by their scores."""
        order = scores.argsort(dim=1, descending=True, stable=True)
        paths = paths.followed(order)
        return Decoded(paths.tokens, paths.log_probs, paths.weights, follow(scores, order))
