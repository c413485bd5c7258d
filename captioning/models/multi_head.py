"""Multi-head attention (Vaswani et al. 2017, section 3.2).

Shapes: R rows of a batch, H heads, N queries, L keys, W width of all heads together, d width of one
head; Q, K and E widths of queries, keys and values as they come, O width of the result.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from captioning.errors import InputError


class KeysValues(NamedTuple):
    """What queries meet, projected once and kept for all of them.

    Attributes:
        keys: all heads side by side.
        values: the same.
    """

    keys: Float[Tensor, "*R L W"]
    values: Float[Tensor, "*R L V"]


class HeadsAttended(NamedTuple):
    """What queries get.

    Attributes:
        context: of all heads together, as the output layer mixes them.
        weights: of each head over the keys, before any dropout; none where nobody asked.
    """

    context: Float[Tensor, "R N O"]
    weights: Float[Tensor, "R H N L"] | None


def attention_weights(
    queries: Float[Tensor, "R H N d"],
    keys: Float[Tensor, "R H L d"],
    mask: Bool[Tensor, "#R #N L"] | None = None,
) -> Float[Tensor, "R H N L"]:
    """softmax(q k / sqrt(d)) of eq. 1, in at least single precision, also under autocast.

    Masked keys weigh exactly zero. All weights of a query that may see no key are zero, so that it
    gets nothing.

    Args:
        queries: projected.
        keys: projected.
        mask: True where a query may see a key; none where each sees all.
    """
    scores = queries @ keys.transpose(2, 3) / queries.shape[3] ** 0.5
    precision = torch.promote_types(scores.dtype, torch.float32)
    if mask is None:
        return scores.softmax(dim=-1, dtype=precision)
    visible = mask[:, None]
    # Where nothing is visible, the softmax is of the scores as they are: it stays finite.
    hidden = ~visible & visible.any(dim=-1, keepdim=True)
    weights = scores.masked_fill(hidden, float("-inf")).softmax(dim=-1, dtype=precision)
    return weights.masked_fill(~visible, 0.0)


def fused_context(
    queries: Float[Tensor, "R H N d"],
    keys: Float[Tensor, "R H L d"],
    values: Float[Tensor, "R H L v"],
    mask: Bool[Tensor, "#R #N L"] | None = None,
    dropout: float = 0.0,
) -> Float[Tensor, "R H N v"]:
    """`attention_weights` times the values, by PyTorch's own kernel, which keeps no weights.

    Args:
        queries: projected.
        keys: projected.
        values: projected.
        mask: True where a query may see a key; none where each sees all.
        dropout: of the weights.
    """
    if mask is None:
        return F.scaled_dot_product_attention(queries, keys, values, dropout_p=dropout)
    visible = mask[:, None]
    sees = visible.any(dim=-1, keepdim=True)
    # Kernels differ in what a row without any key gives: let it see all, then drop what it saw.
    context = F.scaled_dot_product_attention(queries, keys, values, visible | ~sees, dropout)
    return context.masked_fill(~sees, 0.0)


class MultiHead(nn.Module):
    """H attentions at once, each in a space of its own: section 3.2.2.

    With all widths equal it is `torch.nn.MultiheadAttention`, whose three projections are here
    `query`, `key` and `value`, and whose masks are True where ours are False.

    Args:
        query_dim: Q.
        heads: H.
        key_dim: K; Q if none.
        value_dim: E; K if none.
        width: W, of the queries and keys of all heads together; Q if none.
        value_width: the same of the values; W if none.
        output_dim: O; Q if none.
        dropout: of the weights.

    Raises:
        InputError: a width cannot be divided among the heads.
    """

    def __init__(
        self,
        query_dim: int,
        heads: int,
        key_dim: int | None = None,
        value_dim: int | None = None,
        width: int | None = None,
        value_width: int | None = None,
        output_dim: int | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        key_dim = key_dim or query_dim
        width = width or query_dim
        value_width = value_width or width
        for name, divided in (("width", width), ("value width", value_width)):
            if divided % heads:
                raise InputError(
                    f"heads: a {name} of {divided} cannot be divided among {heads} heads; give a "
                    f"divisor of {divided}"
                )
        self.heads = heads
        self.query = nn.Linear(query_dim, width)
        self.key = nn.Linear(key_dim, width)
        self.value = nn.Linear(value_dim or key_dim, value_width)
        self.output = nn.Linear(value_width, output_dim or query_dim)
        self.dropout = dropout
        for layer in (self.query, self.key, self.value, self.output):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)

    def project(
        self, keys: Float[Tensor, "*R L K"], values: Float[Tensor, "*R L E"] | None = None
    ) -> KeysValues:
        """What is computed once for all queries.

        Args:
            keys: what queries are compared with.
            values: what contexts are made of; the same if none.
        """
        return KeysValues(self.key(keys), self.value(keys if values is None else values))

    def attend(
        self,
        query: Float[Tensor, "R N Q"],
        projected: KeysValues,
        mask: Bool[Tensor, "#R #N L"] | None = None,
        with_weights: bool = False,
    ) -> HeadsAttended:
        """Contexts of all queries and, where wanted, the weights.

        Args:
            query: not yet projected.
            projected: what `project` gave, or a cache of it.
            mask: True where a query may see a key; none where each sees all. A query that sees
                none has the context zero, before the output layer adds its bias.
            with_weights: whether to give weights; without them the attention is fused.
        """
        queries, keys, values = map(self._split, (self.query(query), *projected))
        dropout = self.dropout if self.training else 0.0
        weights = None
        if with_weights:
            weights = attention_weights(queries, keys, mask)
            context = F.dropout(weights, dropout).to(values.dtype) @ values
        else:
            context = fused_context(queries, keys, values, mask, dropout)
        return HeadsAttended(self.output(context.transpose(1, 2).flatten(2)), weights)

    def attend_blocks(
        self, query: Float[Tensor, "*R N Q"], blocks: Sequence[KeysValues]
    ) -> Float[Tensor, "*R N O"]:
        """The contexts of queries that see all keys, which come in blocks ``(*R, H, b, d)``.

        The plain form is `attend` over all blocks side by side. This one needs no copy of them, and
        for a single query two products are faster than the fused kernel.

        Args:
            query: not yet projected.
            blocks: what `by_head` gave for some of the keys each.
        """
        queries = self._split(self.query(query))
        scores = torch.cat([queries @ block.keys.transpose(-2, -1) for block in blocks], dim=-1)
        precision = torch.promote_types(scores.dtype, torch.float32)
        weights = (scores / queries.shape[-1] ** 0.5).softmax(dim=-1, dtype=precision)
        weights = F.dropout(weights, self.dropout if self.training else 0.0)
        of_blocks = weights.to(scores.dtype).split([block.keys.shape[-2] for block in blocks], -1)
        context = sum(part @ block.values for part, block in zip(of_blocks, blocks, strict=True))
        return self.output(context.transpose(-3, -2).flatten(-2))

    def by_head(self, projected: KeysValues) -> KeysValues:
        """Keys and values ``(*R, H, L, d)``, each head apart."""
        return KeysValues(*map(self._split, projected))

    def _split(self, together: Float[Tensor, "*R N W"]) -> Float[Tensor, "*R H N d"]:
        return together.unflatten(-1, (self.heads, -1)).transpose(-3, -2)

    def forward(
        self,
        query: Float[Tensor, "R N Q"],
        keys: Float[Tensor, "R L K"],
        values: Float[Tensor, "R L E"] | None = None,
        mask: Bool[Tensor, "#R #N L"] | None = None,
        with_weights: bool = False,
    ) -> HeadsAttended:
        """`project` and `attend` in one."""
        return self.attend(query, self.project(keys, values), mask, with_weights)


def head_names(heads: int) -> dict[str, int | None]:
    """What the maps of an attention are called, each with its head; none for the mean of all."""
    return {"mean": None} | {f"head {head}": head for head in range(1, heads + 1)}


def map_of(weights: Float[Tensor, "B H *N L"], head: int | None) -> Float[Tensor, "B *N L"]:
    """The weights of a head, counted from 1; the mean of all if none."""
    return weights.mean(dim=1) if head is None else weights[:, head - 1]
