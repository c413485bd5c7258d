"""The parts of a transformer (Vaswani et al. 2017): positions, and layers of encoder and decoder.

Shapes: B rows of a batch or images, N captions per image, T words, S words so far, S2 = S + T, L
regions, H heads, W width of the model, W2 = 2 W.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from captioning.models.multi_head import MultiHead

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


class AroundSubLayer(nn.Module):
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
        self.around_attention = AroundSubLayer(width, dropout)
        self.around_network = AroundSubLayer(width, dropout)

    def forward(
        self, x: Float[Tensor, "B L W"], mask: Bool[Tensor, "#B #L L"] | None = None
    ) -> Float[Tensor, "B L W"]:
        """Every position after one look at all those that the mask lets it see."""
        read = self.around_attention.norm(x)
        seen, _ = self.self_attention(read, self.self_attention.project(read), mask)
        x = self.around_attention(x, seen)
        return self.around_network(x, self.feed_forward(self.around_network.norm(x)))


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
        self.around_self = AroundSubLayer(width, dropout)
        self.around_cross = AroundSubLayer(width, dropout)
        self.around_network = AroundSubLayer(width, dropout)

    def forward(
        self,
        words: Float[Tensor, "B N T W"],
        past: Float[Tensor, "B N S W2"],
        regions: Float[Tensor, "B L W2"],
        regions_mask: Bool[Tensor, "B 1 L"] | None = None,
        with_weights: bool = False,
    ) -> tuple[
        Float[Tensor, "B N T W"], Float[Tensor, "B N S2 W2"], Float[Tensor, "B H N T L"] | None
    ]:
        """Read T words of every caption: its first ones, or one after others.

        Args:
            words: the layer's input.
            past: keys and values of the words before; S may be zero.
            regions: keys and values of the image, from `cross_attention.project`.
            regions_mask: True where a region may be seen.
            with_weights: whether to return the weights.

        Returns:
            The layer's output, keys and values of all words so far, and weights over regions.
        """
        captions, count = words.shape[:2], words.shape[2]
        read = self.around_self.norm(words)
        past = torch.cat([past, self.self_attention.project(read)], dim=2)
        mask = None
        if count > 1:  # each word sees itself and those before it (section 3.2.3)
            mask = torch.ones(1, count, count, dtype=torch.bool, device=words.device).tril()
        seen, _ = self.self_attention(read.flatten(0, 1), past.flatten(0, 1), mask)
        words = self.around_self(words, seen.unflatten(0, captions))

        read = self.around_cross.norm(words).flatten(1, 2)
        looked, weights = self.cross_attention(read, regions, regions_mask, with_weights)
        words = self.around_cross(words, looked.unflatten(1, words.shape[1:3]))
        if weights is not None:
            weights = weights.unflatten(2, words.shape[1:3])

        words = self.around_network(words, self.feed_forward(self.around_network.norm(words)))
        return words, past, weights
