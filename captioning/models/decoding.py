"""Search: from annotation vectors to words, for a whole batch of images at once.

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
from captioning.models.decoder import Decoder, Memory, State


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


class _Paths(NamedTuple):
    """The captions so far, and what is needed to go on with them."""

    tokens: Int[Tensor, "B N t"]
    log_probs: Float[Tensor, "B N t"]
    weights: Float[Tensor, "B N t L"]
    finished: Bool[Tensor, "B N"]

    @classmethod
    def empty(cls, memory: Memory, n: int) -> "_Paths":
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
        return (self.tokens != PAD).sum(dim=2)

    def scores(self, length_penalty: float) -> Float[Tensor, "B N"]:
        return self.log_probs.sum(dim=2) / self.lengths.clamp(min=1) ** length_penalty

    def extended(
        self,
        tokens: Int[Tensor, "B N"],
        log_probs: Float[Tensor, "B N"],
        weights: Float[Tensor, "B N L"],
    ) -> "_Paths":
        return _Paths(
            torch.cat([self.tokens, tokens[:, :, None]], dim=2),
            torch.cat([self.log_probs, log_probs[:, :, None]], dim=2),
            torch.cat([self.weights, weights[:, :, None]], dim=2),
            self.finished | (tokens == EOS),
        )

    def followed(self, parents: Int[Tensor, "B N"]) -> "_Paths":
        return _Paths(*(_follow(part, parents) for part in self))


def _follow(part: Tensor, parents: Int[Tensor, "B N"]) -> Tensor:
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

    def _log_probs(self, logits: Float[Tensor, "B N V"], paths: _Paths) -> Float[Tensor, "B N V"]:
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

    def _decoded(self, paths: _Paths, scores: Float[Tensor, "B N"]) -> Decoded:
        order = scores.argsort(dim=1, descending=True, stable=True)
        paths = paths.followed(order)
        return Decoded(paths.tokens, paths.log_probs, paths.weights, _follow(scores, order))


class _Walk(Search):
    """Searches in which every caption goes its own way, one word at a time."""

    captions: int

    @abstractmethod
    def _choose(self, log_probs: Float[Tensor, "B N V"]) -> Int[Tensor, "B N"]:
        """The next word of every caption."""

    @torch.no_grad()
    def __call__(self, decoder: Decoder, memory: Memory) -> Decoded:
        """Write `captions` captions per image, until all have ended or are long enough."""
        paths = _Paths.empty(memory, self.captions)
        state = decoder.start(memory, self.captions)
        for _ in range(self.max_length):
            step = decoder.step(paths.last, state, memory)
            state = step.state
            log_probs = self._log_probs(step.logits, paths)
            words = self._choose(log_probs)
            chosen = log_probs.gather(2, words[:, :, None]).squeeze(2)
            paths = paths.extended(
                words.masked_fill(paths.finished, PAD),
                chosen.masked_fill(paths.finished, 0.0),
                step.weights,
            )
            if paths.finished.all():
                break
        return self._decoded(paths, paths.scores(self.length_penalty))


class Greedy(_Walk):
    """Always the most probable next word.

    Args:
        max_length: the most words of a caption.
        min_length: the fewest words of a caption.
        no_repeat_ngram: no sequence of so many words occurs twice in a caption; 0 allows all.
    """

    captions = 1

    def __init__(self, max_length: int = 20, min_length: int = 1, no_repeat_ngram: int = 0) -> None:
        super().__init__(max_length, min_length, no_repeat_ngram, length_penalty=1.0)

    def _choose(self, log_probs: Float[Tensor, "B N V"]) -> Int[Tensor, "B N"]:
        return log_probs.argmax(dim=-1)


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
        captions: int = 1,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        max_length: int = 20,
        min_length: int = 1,
        no_repeat_ngram: int = 0,
    ) -> None:
        super().__init__(max_length, min_length, no_repeat_ngram, length_penalty=1.0)
        if captions < 1 or temperature <= 0 or top_k < 0 or not 0 < top_p <= 1:
            raise InputError(
                f"cannot draw {captions} captions at temperature {temperature}, top_k {top_k}, "
                f"top_p {top_p}; give captions >= 1, temperature > 0, top_k >= 0, 0 < top_p <= 1"
            )
        self.captions = captions
        self.temperature = temperature
        self.top_k = top_k
        self.top_p = top_p

    def _choose(self, log_probs: Float[Tensor, "B N V"]) -> Int[Tensor, "B N"]:
        probabilities = (log_probs / self.temperature).softmax(dim=-1)
        ranked, words = probabilities.sort(dim=-1, descending=True)
        before = ranked.cumsum(dim=-1) - ranked  # mass of all words ranked above
        ranked = ranked.masked_fill(before >= self.top_p, 0.0)
        if self.top_k:
            ranked[:, :, self.top_k :] = 0.0
        drawn = ranked.flatten(0, 1).multinomial(1).view(*ranked.shape[:2], 1)
        return words.gather(2, drawn).squeeze(2)


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
        width: int = 3,
        length_penalty: float = 1.0,
        max_length: int = 20,
        min_length: int = 1,
        no_repeat_ngram: int = 0,
    ) -> None:
        super().__init__(max_length, min_length, no_repeat_ngram, length_penalty)
        if width < 1:
            raise InputError(f"a beam search needs a width of at least 1, not {width}")
        self.width = width

    @torch.no_grad()
    def __call__(self, decoder: Decoder, memory: Memory) -> Decoded:
        """Search until every kept caption has ended or is long enough."""
        paths = _Paths.empty(memory, self.width)
        state: State = decoder.start(memory, self.width)
        totals = torch.full(paths.finished.shape, float("-inf"), device=memory.keys.device)
        totals[:, 0] = 0.0  # beams start equal, so only the first may branch
        scores = totals
        for _ in range(self.max_length):
            step = decoder.step(paths.last, state, memory)
            log_probs = self._log_probs(step.logits, paths)
            # An ended caption goes on in one way only, by PAD, at no cost.
            log_probs = log_probs.masked_fill(paths.finished[:, :, None], float("-inf"))
            log_probs[:, :, PAD].masked_fill_(paths.finished, 0.0)
            lengths = paths.lengths + ~paths.finished
            ranks = (totals[:, :, None] + log_probs) / lengths[:, :, None] ** self.length_penalty
            scores, best = ranks.flatten(1).topk(self.width)
            parents, words = best // ranks.shape[2], best % ranks.shape[2]
            chosen = log_probs.flatten(1).gather(1, best)
            words = words.masked_fill(scores.isneginf(), EOS)  # fewer captions than beams
            totals = _follow(totals, parents) + chosen
            state = {name: _follow(part, parents) for name, part in step.state.items()}
            weights = _follow(step.weights, parents)
            paths = paths.followed(parents).extended(words, chosen, weights)
            if paths.finished.all():
                break
        return self._decoded(paths, scores)
