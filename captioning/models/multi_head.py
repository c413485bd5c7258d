"""Multi-head attention (Vaswani et al. 2017, section 3.2).

Shapes: R rows of a batch, H heads, N queries, L keys, W width of all heads together, d width of one
head; Q, K and E widths of queries, keys and values before projection, O width of the result; B
images, D annotation width, A attention width.
"""

from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from captioning.errors import InputError
from captioning.models.attention import Attended, Attention


class KeysValues(NamedTuple):
    """Projected keys and values, all heads side by side."""

    keys: Float[Tensor, "*R L W"]
    values: Float[Tensor, "*R L V"]


class HeadsAttended(NamedTuple):
    """The result of multi-head attention.

    Attributes:
        context: of all heads, mixed by the output layer.
        weights: of each head over the keys, before dropout; None unless requested.
    """

    context: Float[Tensor, "R N O"]
    weights: Float[Tensor, "R H N L"] | None


def causal_mask(words: int, device: torch.device | None = None) -> Bool[Tensor, "1 T T"]:
    """Mask in which each word sees itself and those before it (section 3.2.3)."""
    return torch.ones(1, words, words, dtype=torch.bool, device=device).tril()


def attention_weights(
    queries: Float[Tensor, "R H N d"],
    keys: Float[Tensor, "R H L d"],
    mask: Bool[Tensor, "#R #N L"] | None = None,
) -> Float[Tensor, "R H N L"]:
    """softmax(q k / sqrt(d)) of eq. 1, in at least single precision, also under autocast.

    Masked keys weigh exactly zero; every query must see one.
    """
    scores = queries @ keys.transpose(2, 3) / queries.shape[3] ** 0.5
    if mask is not None:
        scores = scores.masked_fill(~mask[:, None], float("-inf"))
    return scores.softmax(dim=-1, dtype=torch.promote_types(scores.dtype, torch.float32))


class MultiHead(nn.Module):
    """H attentions at once, each in a space of its own: section 3.2.2.

    With all widths equal it is `torch.nn.MultiheadAttention`, whose three projections are here
    `query`, `key` and `value`, and whose masks are True where ours are False.

    Args:
        query_dim: Q.
        heads: H.
        key_dim: K; defaults to Q. Values have the same width.
        width: W, of the keys of all heads together; defaults to Q.
        output_dim: O; defaults to Q.
        dropout: of the weights.
    """

    def __init__(
        self,
        query_dim: int,
        heads: int,
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

    def project(self, keys: Float[Tensor, "*R L K"]) -> KeysValues:
        """Keys and values, computed once for all queries."""
        return KeysValues(self.key(keys), self.value(keys))

    def forward(
        self,
        query: Float[Tensor, "R N Q"],
        projected: KeysValues,
        mask: Bool[Tensor, "#R #N L"] | None = None,
        with_weights: bool = False,
    ) -> HeadsAttended:
        """Contexts of all queries and, on request, the weights.

        Args:
            query: not yet projected.
            projected: keys and values from `project`.
            mask: True where a query may see a key; None where each sees all.
            with_weights: if false, PyTorch's fused kernel is used.
        """
        queries, keys, values = (  # (R, H, N or L, d)
            part.unflatten(2, (self.heads, -1)).transpose(1, 2)
            for part in (self.query(query), *projected)
        )
        if with_weights or mask is not None:
            weights = attention_weights(queries, keys, mask)
            context = F.dropout(weights, self.dropout, self.training).to(values.dtype) @ values
        else:
            weights = None
            dropout = self.dropout if self.training else 0.0
            context = F.scaled_dot_product_attention(queries, keys, values, dropout_p=dropout)
        return HeadsAttended(
            self.output(context.transpose(1, 2).flatten(2)), weights if with_weights else None
        )


class MultiHeadAttention(Attention):
    """Several scaled dot products at once, for decoders that attend over regions.

    The context is not a mean of annotation vectors but of their projections: one mean for each
    head, mixed by an output layer to the width of an annotation vector.

    Args:
        query_dim: Q, width of a query.
        annotation_dim: D, width of an annotation vector.
        attention_dim: A, width of the keys of all heads together.
        heads: H; a divisor of A.
    """

    removed: ClassVar = {"dropout": 0.0}

    def __init__(
        self,
        query_dim: int,
        annotation_dim: int,
        attention_dim: int,
        heads: int = 8,
    ) -> None:
        super().__init__()
        self.multi_head = MultiHead(query_dim, heads, annotation_dim, attention_dim, annotation_dim)

    def project(self, annotations: Float[Tensor, "B L D"]) -> Float[Tensor, "B L A2"]:
        """Keys and values, side by side."""
        return torch.cat(self.multi_head.project(annotations), dim=2)

    def forward(
        self,
        query: Float[Tensor, "B N Q"],
        keys: Float[Tensor, "B L A2"],
        annotations: Float[Tensor, "B L D"],
        mask: Bool[Tensor, "B L"] | None = None,
    ) -> Attended:
        """The mixed contexts of all heads, and the mean of their weights."""
        projected = KeysValues(*keys.chunk(2, dim=2))
        regions = None if mask is None else mask[:, None]
        context, weights = self.multi_head(query, projected, regions, with_weights=True)
        assert weights is not None
        return Attended(context, weights.mean(dim=1))
