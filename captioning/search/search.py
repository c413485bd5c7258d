"""What every search over words has in common: the loop, limits, the result.

Shapes: B images, N captions per image, r of these go on, L regions, T words, V vocabulary.
"""

import inspect
from abc import abstractmethod
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from captioning.configurable import Configurable
from captioning.data.vocabulary import BOS, EOS, PAD, UNK
from captioning.errors import InputError
from captioning.models.decoder import Decoder, Memory, State, Step
from captioning.numbers import LengthPenalty, MaxLength, MinLength, NgramLength
from captioning.search.hypotheses import Paths, following

MANY = 16
"""Captions for which it pays to prepare the decoder for one search."""

NEVER = (PAD, BOS, UNK)
"""Words that no search generates."""


class Decoded(NamedTuple):
    """The captions that a search found, the best of each image first.

    Attributes:
        tokens: words and EOS, PAD after it. A caption that met no EOS fills all T.
        log_probs: of each of these tokens; zero at PAD.
        weights: attention while each token was written; zero at PAD.
        scores: sum of a caption's log probabilities over its length (EOS counts) to the power of
            the length penalty; minus infinity for a beam that could not be filled.
    """

    tokens: Int[Tensor, "B N T"]
    log_probs: Float[Tensor, "B N T"]
    weights: Float[Tensor, "B N T L"]
    scores: Float[Tensor, "B N"]


class Search(Configurable):
    """How words are chosen, within limits that hold for every kind of search.

    The words in `NEVER` are not generated. Calling a search with a decoder and its memory of the
    images gives the captions.

    Args:
        max_length: the most words of a caption.
        min_length: the fewest words of a caption.
        no_repeat_ngram: no sequence of so many words occurs twice in a caption; 0 allows all.
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
                f"no caption has at least {min_length} and at most {max_length} words; "
                "give 0 <= min_length <= max_length"
            )
        self.max_length = max_length
        self.min_length = min_length
        self.no_repeat_ngram = no_repeat_ngram
        self.length_penalty = length_penalty

    @torch.no_grad()
    def __call__(self, decoder: Decoder, memory: Memory) -> Decoded:
        """The captions of every image in memory.

        Images whose captions have all ended leave the batch as soon as they are a quarter of it.
        """
        paths = self._begun(memory)
        many = paths.finished.numel() >= MANY
        with decoder.prepared() if many else nullcontext():
            parts = self._parts(decoder, memory, paths)
        return self._decoded(parts, len(memory.keys))

    def _parts(self, decoder: Decoder, memory: Memory, paths: Paths) -> list[Paths]:
        """The ended captions, of the images that left together and of the last ones."""
        done = []
        state = decoder.start(memory, paths.finished.shape[1])
        for _ in range(self.max_length):
            step = decoder.step(paths.last, state, memory)
            paths, state = self._extended(paths, step)
            ended = paths.finished.all(dim=1)
            count = int(ended.sum())
            if count == len(ended):
                break
            if 4 * count >= len(ended):
                done.append(paths.kept(ended.nonzero()[:, 0]))
                going_on = (~ended).nonzero()[:, 0]
                paths = paths.kept(going_on)
                state = {name: part[going_on] for name, part in state.items()}
                memory = memory.kept(going_on)
        return [*done, paths]

    @abstractmethod
    def _begun(self, memory: Memory) -> Paths:
        """The captions before their first word."""

    @abstractmethod
    def _extended(self, paths: Paths, step: Step) -> tuple[Paths, State]:
        """The captions with one word more, and the decoder's state to go on with."""

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

    def scored(self, step: Step, paths: Paths) -> Float[Tensor, "r V"]:
        """Log probabilities of the next word, minus infinity where the limits forbid it.

        They are those among all words that can ever be generated. Writes over the step's logits.
        """
        scores = step.logits.to(torch.promote_types(step.logits.dtype, torch.float32))
        scores.index_fill_(-1, torch.tensor(NEVER, device=scores.device), float("-inf"))
        torch.log_softmax(scores, dim=-1, out=scores)
        limits_early = paths.tokens.shape[2] < self.min_length
        if limits_early or self.no_repeat_ngram:
            end = scores[:, EOS].clone()
            if limits_early:
                scores[:, EOS] = float("-inf")
            if self.no_repeat_ngram:
                self._forbid_repeats(scores, step.rows.in_rows(paths.tokens))
            stuck = scores.amax(dim=-1).isneginf()  # no word is left: end, whatever the limits say
            scores[:, EOS] = torch.where(stuck, end, scores[:, EOS])
        return scores

    def _forbid_repeats(self, scores: Float[Tensor, "r V"], tokens: Int[Tensor, "r t"]) -> None:
        """Forbid, in place, the words that would complete an n-gram for the second time."""
        n = self.no_repeat_ngram
        if tokens.shape[1] < n:
            return
        grams = tokens.unfold(1, n, 1)  # (r, t - n + 1, n)
        begun = tokens[:, None, tokens.shape[1] - n + 1 :]
        repeats = (grams[..., :-1] == begun).all(dim=-1)
        penalties = scores.new_zeros(()).masked_fill(repeats, float("-inf"))
        scores.scatter_add_(1, grams[..., -1], penalties)

    def _decoded(self, parts: list[Paths], batch: int) -> Decoded:
        """The captions of all images in the order of the batch, each image's best first."""
        longest = parts[-1].tokens.shape[2]
        ranked = []
        for paths in parts:
            scores = paths.totals / paths.lengths.clamp(min=1) ** self.length_penalty
            order = scores.argsort(dim=1, descending=True, stable=True)
            follow = following(order)
            missing = longest - paths.tokens.shape[2]
            ranked.append(
                Decoded(
                    F.pad(follow(paths.tokens), (0, missing), value=PAD),
                    F.pad(follow(paths.log_probs), (0, missing)),
                    F.pad(follow(paths.weights), (0, 0, 0, missing)),
                    follow(scores),
                )
            )
        places = torch.cat([paths.images for paths in parts]).argsort()
        return Decoded(*(torch.cat(part)[places] for part in zip(*ranked, strict=True)))
