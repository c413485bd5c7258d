"""Hard attention: one region per word (Xu et al. 2015, section 4.1).

Shapes: B images, N captions (queries) per image, L regions, D annotation width, Q query width, A
attention width.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from captioning.models.attention import AdditiveAttention, Attended


@dataclass
class Draws:
    """The regions that a hard attention has drawn, word by word.

    Attributes:
        expected: images that get the expected context instead.
        log_probs: for every word, log p(s | a) of the region drawn; zero for images in `expected`.
    """

    expected: Bool[Tensor, "B"]
    log_probs: list[Float[Tensor, "B N"]] = field(default_factory=list)


class HardAttention(AdditiveAttention):
    """Draws one region from the weights; the context is its annotation vector (eq. 8-9).

    Regions are drawn only within `drawing`, which `captioning.training.SampledBound` uses to learn
    the weights. Everywhere else, as in a search, the context is the expectation under the weights
    (eq. 13), so that captions do not depend on chance.
    """

    _draws: Draws | None = None

    @contextmanager
    def drawing(self, expected: Bool[Tensor, "B"]) -> Iterator[Draws]:
        """A block in which every query draws a region from torch's generator.

        Args:
            expected: images whose contexts are expectations in the block, too.
        """
        self._draws = Draws(expected)
        try:
            yield self._draws
        finally:
            self._draws = None

    def forward(
        self,
        query: Float[Tensor, "B N Q"],
        keys: Float[Tensor, "B L A"],
        annotations: Float[Tensor, "B L D"],
        mask: Bool[Tensor, "B L"] | None = None,
    ) -> Attended:
        """Weights over regions for every query, and the contexts (eq. 8-9)."""
        soft = super().forward(query, keys, annotations, mask)
        if self._draws is None:
            return self.undrawn(soft, annotations)
        weights, expected = soft.weights, self._draws.expected[:, None]
        regions = self.draw(weights)
        tiny = torch.finfo(weights.dtype).tiny
        log_probs = weights.gather(2, regions[..., None]).squeeze(2).clamp_min(tiny).log()
        self._draws.log_probs.append(log_probs.masked_fill(expected, 0.0))
        one = F.one_hot(regions, weights.shape[2]).to(weights)
        shares = torch.where(expected[..., None], weights, one)
        return Attended(shares.to(annotations.dtype) @ annotations, weights)  # eq. 9

    def draw(self, weights: Float[Tensor, "B N L"]) -> Int[Tensor, "B N"]:
        """A region for every query, drawn by its weight (eq. 8)."""
        return weights.detach().flatten(0, 1).multinomial(1).view(weights.shape[:2])

    def undrawn(self, soft: Attended, annotations: Float[Tensor, "B L D"]) -> Attended:
        """The result outside `drawing`, from that of soft attention."""
        return soft


class ArgmaxHardAttention(HardAttention):
    """Hard attention that selects the region with the largest weight outside `drawing`.

    An argmax has no gradient: only `captioning.training.SampledBound` trains this attention.
    """

    def undrawn(self, soft: Attended, annotations: Float[Tensor, "B L D"]) -> Attended:
        """The annotation vector of the largest weight, the first one if several are equal."""
        one = F.one_hot(soft.weights.argmax(dim=2), annotations.shape[1])
        return soft._replace(context=one.to(annotations.dtype) @ annotations)
