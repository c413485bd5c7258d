"""The searches' kernels: the same captions in less time.

Each equals the class of `captioning.search` that it inherits from. Images whose captions have all
ended leave the batch, only the logits of active captions are normalised, the k best words are found
block by block, and large weights are packed.

Shapes: B images, N captions per image, r active rows, L regions, V vocabulary, k best words.
"""

from dataclasses import fields, is_dataclass, replace
from math import inf
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from captioning.data.vocabulary import PAD
from captioning.kernels.active_rows import ActiveRows, ActiveStep
from captioning.kernels.fast_lstm import FastLSTM
from captioning.kernels.linear import packed
from captioning.models.decoder import Decoder, Memory, State, Step
from captioning.search.beam import BeamSearch, Continuations
from captioning.search.hypotheses import Hypotheses
from captioning.search.independent import Greedy, IndependentSearch, Sampling
from captioning.search.search import NEVER, Decoded, Search

Part = TypeVar("Part")

MANY = 16
"""The fewest captions for which packing weights pays off within one search."""

BLOCK = 128
"""Words in a block of the vocabulary."""


def accelerate_search(search: Search) -> Search:
    """The search's kernel, with the same settings; the search itself if it has none."""
    kind = _FAST.get(type(search))
    return search if kind is None else search.replace(kind)


class _FastSearch(Search):
    """Drops finished images from the batch once they are a quarter of it."""

    @torch.no_grad()
    def __call__(self, decoder: Decoder, memory: Memory) -> Decoded:
        """The captions of every image in memory."""
        hypotheses = self.start(memory)
        images = torch.arange(memory.images, device=hypotheses.tokens.device)
        left: list[tuple[Tensor, Decoded]] = []
        with packed(_layers_of_a_step(decoder, hypotheses.finished.numel())):
            state = decoder.start(memory, hypotheses.tokens.shape[1])
            for _ in range(self.max_length):
                step = decoder.step(hypotheses.last, state, memory)
                hypotheses, state = self.extend(hypotheses, step)
                ended = hypotheses.finished.all(dim=1)
                count = int(ended.sum())
                if count == len(ended):
                    break
                if 4 * count >= len(ended):
                    done, active = (part.nonzero()[:, 0] for part in (ended, ~ended))
                    left.append((images[done], self.rank(of_images(hypotheses, done))))
                    images, memory = images[active], of_images(memory, active)
                    hypotheses, state = of_images(hypotheses, active), of_images(state, active)
        return _in_order([*left, (images, self.rank(hypotheses))])

    def _active_log_probs(
        self, step: Step, hypotheses: Hypotheses
    ) -> tuple[ActiveRows, Float[Tensor, "r V"]]:
        """The active captions' rows and log probabilities, which overwrite the step's logits."""
        if isinstance(step, ActiveStep):
            rows, logits = step.rows, step.active_logits
        else:
            rows = ActiveRows.of(hypotheses.last)
            logits = rows.in_rows(step.logits)
        scores = logits.to(torch.promote_types(logits.dtype, torch.float32))
        for token in NEVER:
            scores[:, token] = -inf
        torch.log_softmax(scores, dim=-1, out=scores)
        self.forbid(scores, rows.in_rows(hypotheses.tokens))
        return rows, scores


class _FastIndependent(_FastSearch, IndependentSearch):
    def extend(self, hypotheses: Hypotheses, step: Step) -> tuple[Hypotheses, State]:
        """Every caption with its next word; PAD if it has ended."""
        rows, log_probs = self._active_log_probs(step, hypotheses)
        draw = None if hypotheses.draw is None else rows.in_rows(hypotheses.draw)
        chosen = self.choose(log_probs, draw)[:, None]
        words, own = (
            rows.by_image(part).squeeze(2) for part in (chosen, log_probs.gather(1, chosen))
        )
        ended = hypotheses.finished
        words, own = words.masked_fill(ended, PAD), own.masked_fill(ended, 0.0)
        return hypotheses.extend(words, own, step.weights), step.state


class _FastGreedy(_FastIndependent, Greedy):
    pass


class _FastSampling(_FastIndependent, Sampling):
    pass


class _FastBeamSearch(_FastSearch, BeamSearch):
    def continuations(self, step: Step, hypotheses: Hypotheses) -> Continuations:
        """The best continuations of the active captions."""
        rows, log_probs = self._active_log_probs(step, hypotheses)
        totals = hypotheses.totals.masked_fill(hypotheses.finished, -inf)
        return best_continuations(log_probs, rows, totals, self.width)


_FAST: dict[type[Search], type[Search]] = {
    Greedy: _FastGreedy,
    Sampling: _FastSampling,
    BeamSearch: _FastBeamSearch,
}
"""The kernel of each class of search."""


def best_continuations(
    scores: Float[Tensor, "r V"], rows: ActiveRows, totals: Float[Tensor, "B N"], k: int
) -> Continuations:
    """The k continuations of each image's captions with the largest sums of total and score.

    Equals what `BeamSearch.continuations` computes, several times faster for large vocabularies:
    the k best words of an image lie in the k blocks of words with the largest maxima.

    Args:
        scores: of every next word, for the active captions.
        rows: of the active captions.
        totals: of the captions so far; minus infinity for ended captions.
        k: number of continuations.
    """
    vocabulary, device = scores.shape[1], scores.device
    in_blocks = vocabulary - vocabulary % BLOCK
    maxima = scores[:, :in_blocks].unflatten(1, (-1, BLOCK)).amax(2)
    if in_blocks < vocabulary:
        maxima = torch.cat([maxima, scores[:, in_blocks:].amax(1, keepdim=True)], dim=1)
    count = maxima.shape[1]
    maxima = (rows.by_image(maxima) + totals[:, :, None]).flatten(1)
    places = maxima.topk(min(k, maxima.shape[1])).indices
    captions, blocks = places // count, places % count

    words = blocks[:, :, None] * BLOCK + torch.arange(BLOCK, device=device)
    behind = words >= vocabulary
    words = words.clamp_(max=vocabulary - 1)
    numbers = rows.by_image(torch.arange(len(scores), device=device)[:, None]).flatten(1)
    starts = numbers.gather(1, captions)[:, :, None] * vocabulary
    found = scores.take(starts + words).masked_fill_(behind, -inf)
    sums = found + totals.gather(1, captions)[:, :, None]
    sums, places = sums.flatten(1).topk(k)
    return Continuations(
        sums,
        found.flatten(1).gather(1, places),
        captions.gather(1, places // BLOCK),
        words.flatten(1).gather(1, places),
    )


def _layers_of_a_step(decoder: nn.Module, captions: int) -> list[nn.Linear]:
    """The layers of a decoder, or of the members of an ensemble, that are worth packing."""
    return [
        layer
        for module in decoder.modules()
        if isinstance(module, FastLSTM)
        for layer in module.layers_of_a_step
        if captions >= MANY or not layer.weight.requires_grad  # which stay packed
    ]


def of_images(part: Part, images: Tensor) -> Part:
    """The part of some images of a tensor (B, ...), or of a structure of such tensors."""
    found: object = part
    if isinstance(part, Tensor):
        found = part[images]
    elif isinstance(part, dict):
        found = {name: of_images(value, images) for name, value in part.items()}
    elif isinstance(part, tuple):
        found = tuple(of_images(value, images) for value in part)
    elif is_dataclass(part) and not isinstance(part, type):
        values = {field.name: getattr(part, field.name) for field in fields(part)}
        found = replace(part, **of_images(values, images))
    return found  # type: ignore[return-value]


def _in_order(parts: list[tuple[Tensor, Decoded]]) -> Decoded:
    """The captions of images that ended at different times, in the order of the batch."""
    longest = max(decoded.tokens.shape[2] for _, decoded in parts)
    padded = [
        Decoded(
            F.pad(decoded.tokens, (0, missing), value=PAD),
            F.pad(decoded.log_probs, (0, missing)),
            F.pad(decoded.weights, (0, 0, 0, missing)),
            decoded.scores,
        )
        for _, decoded in parts
        for missing in [longest - decoded.tokens.shape[2]]
    ]
    places = torch.cat([images for images, _ in parts]).argsort()
    return Decoded(*(torch.cat(part)[places] for part in zip(*padded, strict=True)))
