"""Multi-head attention (Vaswani et al. 2017, section 3.2).

Shapes: R rows of a batch, H heads, N queries, L keys, W width of all heads together, d width of one
head; W2 = 2 W, keys and values side by side; Q, K and O widths of queries, of keys before their
projection and of the result; B images, D annotation width, A attention width, A2 = 2 A.
"""

from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from captioning.errors import InputError
from captioning.models.attention import Attended, Attention, masked_softmax


class MultiHead(nn.Module):
    """H attentions at once, each in a space of its own (section 3.2.2).

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
        """Keys and values side by side, computed once for all queries."""
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
            mask: True where a query may see a key, at least one; None where each sees all.
            with_weights: if false, weights are None, and without a mask PyTorch's fused attention
                computes the contexts.
        """
        queries, keys, values = (  # (R, H, N or L, d)
            part.unflatten(2, (self.heads, -1)).transpose(1, 2)
            for part in (self.query(query), *projected.chunk(2, dim=-1))
        )
        weights = None
        if with_weights or mask is not None:
            scores = queries @ keys.transpose(2, 3) / queries.shape[3] ** 0.5  # eq. 1
            weights = masked_softmax(scores, mask)
            context = F.dropout(weights, self.dropout, self.training).to(values.dtype) @ values
        else:
            dropout = self.dropout if self.training else 0.0
            context = F.scaled_dot_product_attention(queries, keys, values, dropout_p=dropout)
        mixed = self.output(context.transpose(1, 2).flatten(2))
        return mixed, weights if with_weights else None


class MultiHeadAttention(Attention):
    """Several scaled dot products at once, for decoders that attend over regions.

    The context is not a mean of annotation vectors but of their projections: one mean for each
    head, mixed by an output layer to the width of an annotation vector.

    Args:
        query_dim: Q.
        annotation_dim: D.
        attention_dim: A, width of the keys of all heads together.
        heads: H; a divisor of A.
    """

    removed: ClassVar = {"dropout": 0.0}

    def __init__(
        self, query_dim: int, annotation_dim: int, attention_dim: int, heads: int = 8
    ) -> None:
        super().__init__()
        self.multi_head = MultiHead(query_dim, heads, annotation_dim, attention_dim, annotation_dim)

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
        regions = None if mask is None else mask[:, None]
        context, weights = self.multi_head(query, keys, regions, with_weights=True)
        return Attended(context, weights.mean(dim=1))
