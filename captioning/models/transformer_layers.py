"""The parts of a transformer (Vaswani et al. 2017): positions, and layers of encoder and decoder.

Shapes: B rows of a batch or images, N captions per image, T words, S words so far, L regions, H
heads, W width of the model.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from captioning.models.multi_head import KeysValues, MultiHead, causal_mask

LONGEST_WAVE = 10_000.0
"""The slowest wave repeats after 2 pi times this many positions."""


def sinusoids(positions: Float[Tensor, "T"], width: int) -> Float[Tensor, "T W"]:
    """Sine and cosine of each position, in turn, at falling frequencies.

    PE(p, 2i) = sin(p / 10000^(2i / W)) and PE(p, 2i + 1) = cos(p / 10000^(2i / W)) (section 3.5).
    """
    pairs = torch.arange((width + 1) // 2, device=positions.device, dtype=positions.dtype)
    angles = positions[:, None] * LONGEST_WAVE ** (-2 * pairs / width)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)[:, :width]


class FeedForward(nn.Module):
    """The position-wise network: max(0, x W1 + b1) W2 + b2 (section 3.3, eq. 2)."""

    def __init__(self, width: int, inner_width: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.inner = nn.Linear(width, inner_width)
        self.outer = nn.Linear(inner_width, width)
        self.dropout = nn.Dropout(dropout)
        for layer in (self.inner, self.outer):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, x: Float[Tensor, "*B W"]) -> Float[Tensor, "*B W"]:
        return self.outer(self.dropout(self.inner(x).relu()))


class Residual(nn.Module):
    """The residual connection around a sub-layer, whose input is normalised.

    The norm comes before the sub-layer (Xiong et al. 2020) rather than after the sum, so that deep
    models train without a warm-up.
    """

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, x: Float[Tensor, "*B W"], change: Float[Tensor, "*B W"]
    ) -> Float[Tensor, "*B W"]:
        """The sum of x and the sub-layer's output for `norm(x)`."""
        return x + self.dropout(change)


class EncoderLayer(nn.Module):
    """Self-attention and the position-wise network; equals `torch.nn.TransformerEncoderLayer`.

    The arguments are those of `DecoderLayer`.
    """

    def __init__(self, width: int, heads: int, inner_width: int, dropout: float) -> None:
        super().__init__()
        self.self_attention = MultiHead(width, heads, dropout=dropout)
        self.feed_forward = FeedForward(width, inner_width, dropout)
        self.around_attention = Residual(width, dropout)
        self.around_network = Residual(width, dropout)

    def forward(
        self, x: Float[Tensor, "B L W"], mask: Bool[Tensor, "#B #L L"] | None = None
    ) -> Float[Tensor, "B L W"]:
        """Every position after one look at all those that the mask lets it see."""
        read = self.around_attention.norm(x)
        seen = self.self_attention(read, self.self_attention.project(read), mask)
        x = self.around_attention(x, seen.context)
        return self.around_network(x, self.feed_forward(self.around_network.norm(x)))


class DecoderLayerResult(NamedTuple):
    """The result of a decoder layer."""

    words: Float[Tensor, "B N T W"]
    past: KeysValues  # of all words so far
    weights: Float[Tensor, "B H N T L"] | None  # over regions; None unless requested


class DecoderLayer(nn.Module):
    """Self-attention over words, attention over regions, and the position-wise network.

    Equals `torch.nn.TransformerDecoderLayer` if N is one. The N captions of an image share one copy
    of its keys and values.

    Args:
        width: W.
        heads: H.
        inner_width: of the position-wise network.
        dropout: of weights, hidden layers and the output of each sub-layer.
        annotation_dim: D, width of the annotation vectors; defaults to W.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        inner_width: int,
        dropout: float,
        annotation_dim: int | None = None,
    ) -> None:
        super().__init__()
        self.self_attention = MultiHead(width, heads, dropout=dropout)
        self.cross_attention = MultiHead(
            width, heads, key_dim=annotation_dim, width=width, dropout=dropout
        )
        self.feed_forward = FeedForward(width, inner_width, dropout)
        self.around_self = Residual(width, dropout)
        self.around_cross = Residual(width, dropout)
        self.around_network = Residual(width, dropout)

    def forward(
        self,
        words: Float[Tensor, "B N T W"],
        past: KeysValues,
        regions: KeysValues,
        regions_mask: Bool[Tensor, "B 1 L"] | None = None,
        with_weights: bool = False,
    ) -> DecoderLayerResult:
        """Read T words of every caption: its first ones, or one after others.

        Args:
            words: the layer's input.
            past: keys and values (B, N, S, W) of the words before; S may be zero.
            regions: keys and values (B, L, W) of the image, from `cross_attention.project`.
            regions_mask: True where a region may be seen.
            with_weights: whether to return the weights over regions.
        """
        shape = words.shape[:3]
        read = self.around_self.norm(words)
        new = self.self_attention.project(read)
        past = KeysValues(*(torch.cat(parts, dim=2) for parts in zip(past, new, strict=True)))
        rows = KeysValues(past.keys.flatten(0, 1), past.values.flatten(0, 1))
        mask = causal_mask(shape[2], words.device) if shape[2] > 1 else None
        seen = self.self_attention(read.flatten(0, 1), rows, mask)
        words = self.around_self(words, seen.context.unflatten(0, shape[:2]))

        read = self.around_cross.norm(words).flatten(1, 2)
        looked = self.cross_attention(read, regions, regions_mask, with_weights=with_weights)
        words = self.around_cross(words, looked.context.unflatten(1, shape[1:]))
        weights = None if looked.weights is None else looked.weights.unflatten(2, shape[1:])

        words = self.around_network(words, self.feed_forward(self.around_network.norm(words)))
        return DecoderLayerResult(words, past, weights)
