"""Which regions of the image matter for the next word: soft and hard attention (Xu et al. 2015).

Shapes: B images, N captions (queries) per image, L regions, D annotation width, Q query width,
A attention width, H heads.
"""

from abc import abstractmethod
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from captioning.configurable import Configurable


class Attended(NamedTuple):
    """The result of attention.

    Attributes:
        context: the expected annotation vector under the weights (eq. 13).
        weights: attention weights over regions; each row sums to one.
    """

    context: Float[Tensor, "B N D"]
    weights: Float[Tensor, "B N L"]


class Attention(Configurable, nn.Module):
    """Keys once per image, then weights and contexts for any number of queries.

    A decoder calls `project` once per image and the module itself at every word. The constructor
    of a subclass takes the widths of queries, annotation vectors and keys, in this order; further
    arguments need defaults.
    """

    @abstractmethod
    def project(self, annotations: Float[Tensor, "B L D"]) -> Float[Tensor, "B L A"]:
        """The keys, computed once per image and shared by all its captions and words."""

    @abstractmethod
    def forward(
        self,
        query: Float[Tensor, "B N Q"],
        keys: Float[Tensor, "B L A"],
        annotations: Float[Tensor, "B L D"],
        mask: Bool[Tensor, "B L"] | None = None,
    ) -> Attended:
        """Weights over regions for every query, and the contexts.

        Args:
            query: of each caption.
            keys: from `project`.
            annotations: what contexts are made of.
            mask: True where a region may be attended; None where all may.
        """


class ScoredAttention(Attention):
    """Attention that scores each pair of query and key; subclasses define `scores`.

    Args:
        query_dim: Q.
        annotation_dim: D.
        attention_dim: A, width of the space in which queries meet keys.
    """

    def __init__(self, query_dim: int, annotation_dim: int, attention_dim: int) -> None:
        super().__init__()
        self.key = nn.Linear(annotation_dim, attention_dim)
        self.query = nn.Linear(query_dim, attention_dim, bias=False)

    def project(self, annotations: Float[Tensor, "B L D"]) -> Float[Tensor, "B L A"]:
        return self.key(annotations)

    @abstractmethod
    def scores(
        self, query: Float[Tensor, "B N Q"], keys: Float[Tensor, "B L A"]
    ) -> Float[Tensor, "B N L"]:
        """How well each region fits each query, before the softmax (eq. 4)."""

    def forward(
        self,
        query: Float[Tensor, "B N Q"],
        keys: Float[Tensor, "B L A"],
        annotations: Float[Tensor, "B L D"],
        mask: Bool[Tensor, "B L"] | None = None,
    ) -> Attended:
        """Weights over regions for every query, and the contexts (eq. 4-6, 13)."""
        weights = masked_softmax(self.scores(query, keys), mask)
        return Attended(weights.to(annotations.dtype) @ annotations, weights)  # eq. 13


class AdditiveAttention(ScoredAttention):
    """A perceptron scores each pair of query and key (Bahdanau et al. 2015; Xu et al., eq. 4)."""

    def __init__(self, query_dim: int, annotation_dim: int, attention_dim: int) -> None:
        super().__init__(query_dim, annotation_dim, attention_dim)
        self.energy = nn.Linear(attention_dim, 1, bias=False)

    def scores(
        self, query: Float[Tensor, "B N Q"], keys: Float[Tensor, "B L A"]
    ) -> Float[Tensor, "B N L"]:
        """E = v . tanh(W_a a + W_h h)."""
        pairs = keys[:, None] + self.query(query)[:, :, None]  # (B, N, L, A)
        return self.energy(pairs.tanh()).squeeze(3)


class DotProductAttention(ScoredAttention):
    """The scaled dot product of query and key (Luong et al. 2015; Vaswani et al. 2017, eq. 1)."""

    def scores(
        self, query: Float[Tensor, "B N Q"], keys: Float[Tensor, "B L A"]
    ) -> Float[Tensor, "B N L"]:
        """Dot products divided by the square root of A."""
        return self.query(query) @ keys.transpose(1, 2) / keys.shape[-1] ** 0.5


class HardAttention(AdditiveAttention):
    """Additive attention that can also draw one region per word (section 4.1).

    Regions are drawn only where a decoder's state asks for it, which
    `captioning.training.SampledBound` does to learn the weights. Everywhere else, as in a search,
    the context is the expectation under the weights (eq. 13), so captions do not depend on chance.
    """

    def drawn(
        self,
        weights: Float[Tensor, "B N L"],
        annotations: Float[Tensor, "B L D"],
        draws: Bool[Tensor, "B N"],
    ) -> tuple[Float[Tensor, "B N D"], Float[Tensor, "B N"]]:
        """Contexts, and log p(s | a) of the regions drawn (eq. 8-9).

        Args:
            weights: attention weights over regions.
            annotations: what contexts are made of.
            draws: queries that look at one region; the others get the expectation, and zero.
        """
        regions = self.draw(weights)
        tiny = torch.finfo(weights.dtype).tiny
        log_probs = weights.gather(2, regions[..., None]).squeeze(2).clamp_min(tiny).log()
        one = F.one_hot(regions, weights.shape[2]).to(weights)
        shares = torch.where(draws[..., None], one, weights)
        context = shares.to(annotations.dtype) @ annotations  # eq. 9
        return context, log_probs.masked_fill(~draws, 0.0)

    def draw(self, weights: Float[Tensor, "B N L"]) -> Int[Tensor, "B N"]:
        """A region for every query, drawn by its weight (eq. 8)."""
        return weights.detach().flatten(0, 1).multinomial(1).view(weights.shape[:2])


def masked_softmax(
    scores: Float[Tensor, "B *H N L"], mask: Bool[Tensor, "#B *N L"] | None = None
) -> Float[Tensor, "B *H N L"]:
    """Softmax over regions (eq. 5), in at least single precision.

    Args:
        scores: of each region for each query, by any number of heads.
        mask: True where a region may be attended, at least once per query; the others weigh zero.
            (B, L) for all queries alike, (B, N, L) for those of several heads; None where all may.
    """
    if mask is not None:
        scores = scores.masked_fill(~mask[:, None], float("-inf"))
    return scores.softmax(dim=-1, dtype=torch.promote_types(scores.dtype, torch.float32))
