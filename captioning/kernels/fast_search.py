"""The kernels of the searches: the same captions in less time.

Equals `captioning.search`. Images whose captions have all ended leave the batch, only the logits of
active captions are normalised, and the top k are found block by block.

Shapes: B images, N captions per image, r active rows, L regions, V vocabulary.
"""

from contextlib import nullcontext
from math import inf

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from captioning.data.vocabulary import PAD
from captioning.kernels.active_rows import ActiveRows
from captioning.kernels.active_step import ActiveStep
from captioning.kernels.packing import packed_weights
from captioning.kernels.topk import topk_continuations
from captioning.models.decoder import Decoder, Memory, Step
from captioning.search import BeamSearch, Decoded, Greedy, Sampling, Search
from captioning.search.beam import Continuations
from captioning.search.greedy import IndependentSearch
from captioning.search.hypotheses import Hypotheses
from captioning.search.search import NEVER

MANY = 16
"""The fewest captions for which packing the decoder's weights pays off within one search."""


class _Leaving(Search):
    """A search that drops finished images from the batch once they are a quarter of it."""

    @torch.no_grad()
    def __call__(self, decoder: Decoder, memory: Memory) -> Decoded:
        """The captions of every image in memory."""
        hypotheses = self.begin(memory)
        many = hypotheses.finished.numel() >= MANY
        with packed_weights(decoder) if many else nullcontext():
            return self._search(decoder, memory, hypotheses)

    def _search(self, decoder: Decoder, memory: Memory, hypotheses: Hypotheses) -> Decoded:
        images = torch.arange(memory.images, device=hypotheses.tokens.device)
        left: list[tuple[Tensor, Decoded]] = []
        state = decoder.start(memory, hypotheses.captions)
        for _ in range(self.max_length):
            step = decoder.step(hypotheses.last, state, memory)
            hypotheses, state = self.extend(hypotheses, step)
            ended = hypotheses.finished.all(dim=1)
            count = int(ended.sum())
            if count == len(ended):
                break
            if 4 * count >= len(ended):
                done, active = (part.nonzero()[:, 0] for part in (ended, ~ended))
                left.append((images[done], self.rank(hypotheses.keep(done))))
                images, hypotheses = images[active], hypotheses.keep(active)
                state = {name: part[active] for name, part in state.items()}
                memory = memory.keep(active)
        return _in_order([*left, (images, self.rank(hypotheses))])

    def _active_log_probs(
        self, step: Step, hypotheses: Hypotheses
    ) -> tuple[ActiveRows, Float[Tensor, "r V"]]:
        """The log probabilities of the active captions, and their rows.

        They overwrite the step's logits.
        """
        if isinstance(step, ActiveStep):
            rows, logits = step.rows, step.active_logits
        else:
            rows = ActiveRows.of(hypotheses.last)
            logits = rows.in_rows(step.logits)
        scores = logits.to(torch.promote_types(logits.dtype, torch.float32))
        scores.index_fill_(-1, torch.tensor(NEVER, device=scores.device), -inf)
        torch.log_softmax(scores, dim=-1, out=scores)
        return rows, self.within_limits(scores, rows.in_rows(hypotheses.tokens))


class _FastIndependent(_Leaving, IndependentSearch):
    def next_words(
        self, step: Step, hypotheses: Hypotheses
    ) -> tuple[Int[Tensor, "B N"], Float[Tensor, "B N"]]:
        """The next word of every caption and its log probability; arbitrary for ended captions."""
        rows, log_probs = self._active_log_probs(step, hypotheses)
        words = self.choose(log_probs)[:, None]
        found = words, log_probs.gather(1, words)
        next_words, their_log_probs = (rows.by_image(part).squeeze(2) for part in found)
        return next_words, their_log_probs


class _FastGreedy(_FastIndependent, Greedy):
    pass


class _FastSampling(_FastIndependent, Sampling):
    pass


class _FastBeamSearch(_Leaving, BeamSearch):
    def continuations(self, step: Step, hypotheses: Hypotheses) -> Continuations:
        """The best continuations of the active captions."""
        rows, log_probs = self._active_log_probs(step, hypotheses)
        totals = hypotheses.totals.masked_fill(hypotheses.finished, -inf)
        return topk_continuations(log_probs, rows, totals, self.width)


FAST: dict[type[Search], type[Search]] = {
    Greedy: _FastGreedy,
    Sampling: _FastSampling,
    BeamSearch: _FastBeamSearch,
}
"""The kernel of each class of search."""


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
