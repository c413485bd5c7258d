"""Soft and hard attention over the regions of an image (Xu et al. 2015).

Shapes: B images, N captions (queries) per image, L regions (keys), D annotation width, Q query
width, A attention width, A2 = 2 A, H heads. Of several heads (Vaswani et al. 2017, section 3.2):
R rows of a batch, W width of all heads together, W2 = 2 W, keys and values side by side, d width of
one head, K and O widths of keys before their projection and of the result.
"""

from abc import abstractmethod
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from captioning.configurable import Configurable
from captioning.errors import InputError


class Attended(NamedTuple):
    """The result of attention.

    Attributes:
        context: the expected annotation vector under the weights (eq. 13).
        weights: attention weights over regions; each row sums to one.
    """

    context: Float[Tensor, "B N D"]
    weights: Float[Tensor, "B N L"]


class Attention(Configurable, nn.Module):
    """Computes keys once per image, then weights and contexts for any number of queries.

    A decoder calls `project` once per image and the module itself at every word. The constructor
    of a subclass takes the widths of queries, annotation vectors and keys, in this order; further
    arguments need defaults.
    """

    @abstractmethod
    def project(self, annotations: Float[Tensor, "B L D"]) -> Float[Tensor, "B L A"]:
        """Compute the keys, once per image for all its captions and words."""

    @abstractmethod
    def forward(
        self,
        query: Float[Tensor, "B N Q"],
        keys: Float[Tensor, "B L A"],
        annotations: Float[Tensor, "B L D"],
        mask: Bool[Tensor, "B L"] | None = None,
    ) -> Attended:
        """Compute the weights over regions for every query, and the contexts.

        Args:
            query: query of each caption.
            keys: keys from `project`.
            annotations: annotation vectors, of which contexts are weighted means.
            mask: True for regions that may be attended; None for all.
        """


class ScoredAttention(Attention):
    """Attention that scores each pair of query and key; subclasses define `scores`.

    Args:
        query_dim: Q.
        annotation_dim: D.
        attention_dim: A, width of the space in which queries meet keys.
        dropout: of the weights that make contexts; the result has all weights.
    """

    def __init__(
        self, query_dim: int, annotation_dim: int, attention_dim: int, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.key = nn.Linear(annotation_dim, attention_dim)
        self.query = nn.Linear(query_dim, attention_dim, bias=False)
        self.dropout = nn.Dropout(dropout)

    def project(self, annotations: Float[Tensor, "B L D"]) -> Float[Tensor, "B L A"]:
        return self.key(annotations)

    @abstractmethod
    def scores(
        self, query: Float[Tensor, "B N Q"], keys: Float[Tensor, "B L A"]
    ) -> Float[Tensor, "B N L"]:
        """Score each region for each query, before the softmax (eq. 4)."""

    def forward(
        self,
        query: Float[Tensor, "B N Q"],
        keys: Float[Tensor, "B L A"],
        annotations: Float[Tensor, "B L D"],
        mask: Bool[Tensor, "B L"] | None = None,
    ) -> Attended:
        """Weights over regions for every query, and the contexts (eq. 4-6, 13)."""
        weights = masked_softmax(self.scores(query, keys), mask)
        context = self.dropout(weights).to(annotations.dtype) @ annotations  # eq. 13
        return Attended(context, weights)


class AdditiveAttention(ScoredAttention):
    """A perceptron scores each pair of query and key (Bahdanau et al. 2015; Xu et al., eq. 4)."""

    def __init__(
        self, query_dim: int, annotation_dim: int, attention_dim: int, dropout: float = 0.0
    ) -> None:
        super().__init__(query_dim, annotation_dim, attention_dim, dropout)
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
            annotations: annotation vectors, of which contexts are weighted means.
            draws: True for queries that draw one region; others get the expectation, and zero.
        """
        regions = self.draw(weights)
        tiny = torch.finfo(weights.dtype).tiny
        log_probs = weights.gather(2, regions[..., None]).squeeze(2).clamp_min(tiny).log()
        one_hot = F.one_hot(regions, weights.shape[2]).to(weights)
        shares = torch.where(draws[..., None], one_hot, self.dropout(weights))
        context = shares.to(annotations.dtype) @ annotations  # eq. 9
        return context, log_probs.masked_fill(~draws, 0.0)

    def draw(self, weights: Float[Tensor, "B N L"]) -> Int[Tensor, "B N"]:
        """Draw a region for every query, by the weights (eq. 8)."""
        return weights.detach().flatten(0, 1).multinomial(1).view(weights.shape[:2])


def masked_softmax(
    scores: Float[Tensor, "B *H N L"], mask: Bool[Tensor, "#B *N L"] | None = None
) -> Float[Tensor, "B *H N L"]:
    """Softmax over regions (eq. 5), in at least single precision.

    Args:
        scores: of each region for each query, by any number of heads.
        mask: True for regions that may be attended, at least one per query; others weigh zero.
            (B, L), or (B, N, L) if the mask differs per query; None for all regions.
    """
    if mask is not None:
        scores = scores.masked_fill(~mask[:, None], float("-inf"))
    return scores.softmax(dim=-1, dtype=torch.promote_types(scores.dtype, torch.float32))


class MultiHead(nn.Module):
    """H attentions at once, each in a space of its own (Vaswani et al. 2017, 3.2.2).

    With all widths equal it is `torch.nn.MultiheadAttention`, whose three projections are here
    `query`, `key` and `value`, and whose masks are True where ours are False.

    Args:
        query_dim: Q, and the default of the other widths.
        heads: H.
        key_dim: K, of keys and values.
        width: W.
        output_dim: O.
        dropout: of the weights.
    """

    def __init__(
        self,
        query_dim: int,
        heads: int,
        *,
        key_dim: int | None = None,
        width: int | None = None,
        output_dim: int | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        width = width or query_dim
        if width % heads:
            raise InputError(f"a width of {width} cannot be divided among {heads} heads")
        self.heads = heads
        self.dropout = dropout
        self.query = nn.Linear(query_dim, width)
        self.key = nn.Linear(key_dim or query_dim, width)
        self.value = nn.Linear(key_dim or query_dim, width)
        self.output = nn.Linear(width, output_dim or query_dim)
        for layer in (self.query, self.key, self.value, self.output):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)

    def project(self, keys: Float[Tensor, "*R L K"]) -> Float[Tensor, "*R L W2"]:
        """Compute keys and values side by side, once for all queries."""
        return torch.cat([self.key(keys), self.value(keys)], dim=-1)

    def forward(
        self,
        query: Float[Tensor, "R N Q"],
        projected: Float[Tensor, "R L W2"],
        mask: Bool[Tensor, "#R #N L"] | None = None,
        with_weights: bool = False,
    ) -> tuple[Float[Tensor, "R N O"], Float[Tensor, "R H N L"] | None]:
        """Contexts, mixed by the output layer, and the weights of each head before dropout.

        Args:
            query: not yet projected.
            projected: keys and values from `project`.
            mask: True for keys that a query may attend to, at least one; None for all.
            with_weights: if false, weights are None, and without a mask PyTorch's fused attention
                computes the contexts.
        """
        queries, keys, values = (  # (R, H, N or L, d)
            part.unflatten(2, (self.heads, -1)).transpose(1, 2)
            for part in (self.query(query), *projected.chunk(2, dim=-1))
        )
        weights = None
        if with_weights or mask is not None:
            scores = queries @ keys.transpose(2, 3) / queries.shape[3] ** 0.5  # their eq. 1
            weights = masked_softmax(scores, mask)
            context = F.dropout(weights, self.dropout, self.training).to(values.dtype) @ values
        else:
            dropout = self.dropout if self.training else 0.0
            context = F.scaled_dot_product_attention(queries, keys, values, dropout_p=dropout)
        mixed = self.output(context.transpose(1, 2).flatten(2))
        return mixed, weights if with_weights else None


class MultiHeadAttention(Attention):
    """Multi-head attention for decoders that attend over regions.

    Each head's context is a mean of projected annotation vectors; an output layer mixes them to the
    width of an annotation vector.

    Args:
        query_dim: Q.
        annotation_dim: D.
        attention_dim: A, width of the keys of all heads together.
        heads: H; a divisor of A.
        dropout: of the weights that make contexts; the result has all weights.
    """

    limits: ClassVar = {"heads": range(1, 257)}

    def __init__(
        self,
        query_dim: int,
        annotation_dim: int,
        attention_dim: int,
        heads: int = 8,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.multi_head = MultiHead(
            query_dim,
            heads,
            key_dim=annotation_dim,
            width=attention_dim,
            output_dim=annotation_dim,
            dropout=dropout,
        )

    def project(self, annotations: Float[Tensor, "B L D"]) -> Float[Tensor, "B L A2"]:
        """Keys and values side by side."""
        return self.multi_head.project(annotations)

    def forward(
        self,
        query: Float[Tensor, "B N Q"],
        keys: Float[Tensor, "B L A2"],
        annotations: Float[Tensor, "B L D"],
        mask: Bool[Tensor, "B L"] | None = None,
    ) -> Attended:
        """The mixed contexts of all heads, and the mean of their weights."""
        query_mask = None if mask is None else mask[:, None]
        context, weights = self.multi_head(query, keys, query_mask, with_weights=True)
        return Attended(context, weights.mean(dim=1))
