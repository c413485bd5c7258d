"""A transformer that writes captions (Vaswani et al. 2017, over the regions of an image).

Shapes: B images, N captions per image, L regions, D annotation width, T words, S words so far, S2 =
S + T, H heads, W width of the model, W2 = 2 W, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from captioning.data.vocabulary import PAD
from captioning.models.attention import MultiHead
from captioning.models.decoder import Decoder, Memory, State, Step


def sinusoids(positions: Float[Tensor, " T"], width: int) -> Float[Tensor, "T W"]:
    """Sine and cosine of each position, in turn, at falling frequencies (section 3.5).

    PE(p, 2i) = sin(p / 10000^(2i / W)) and PE(p, 2i + 1) = cos(p / 10000^(2i / W)).
    """
    pairs = torch.arange((width + 1) // 2, device=positions.device, dtype=positions.dtype)
    angles = positions[:, None] * 10_000.0 ** (-2 * pairs / width)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)[:, :width]


class FeedForward(nn.Module):
    """The position-wise network: max(0, x W1 + b1) W2 + b2 (section 3.3, eq. 2)."""

    def __init__(self, width: int, inner_width: int, dropout: float) -> None:
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
    """The residual connection around a sub-layer: x plus the sub-layer's output for `norm(x)`.

    The input is normalised (Xiong et al. 2020) rather than the sum, so that deep models train
    without a warm-up.
    """

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, x: Float[Tensor, "*B W"], output: Float[Tensor, "*B W"]
    ) -> Float[Tensor, "*B W"]:
        return x + self.dropout(output)


class EncoderLayer(nn.Module):
    """Self-attention and the position-wise network; equals `torch.nn.TransformerEncoderLayer`."""

    def __init__(self, width: int, heads: int, *, inner_width: int, dropout: float) -> None:
        super().__init__()
        self.self_attention = MultiHead(width, heads, dropout=dropout)
        self.feed_forward = FeedForward(width, inner_width, dropout)
        self.around_attention = AroundSubLayer(width, dropout)
        self.around_network = AroundSubLayer(width, dropout)

    def forward(
        self, x: Float[Tensor, "B L W"], mask: Bool[Tensor, "#B #L L"] | None = None
    ) -> Float[Tensor, "B L W"]:
        """Attend from every position to those that the mask allows, and apply the network."""
        query = self.around_attention.norm(x)
        context, _ = self.self_attention(query, self.self_attention.project(query), mask)
        x = self.around_attention(x, context)
        return self.around_network(x, self.feed_forward(self.around_network.norm(x)))


class DecoderLayer(nn.Module):
    """Self-attention over words, attention over regions, and the position-wise network.

    Equals `torch.nn.TransformerDecoderLayer` if N is one. The N captions of an image share one copy
    of its keys and values.
    """

    def __init__(
        self, width: int, heads: int, *, inner_width: int, dropout: float, annotation_dim: int
    ) -> None:
        super().__init__()
        self.self_attention = MultiHead(width, heads, dropout=dropout)
        self.cross_attention = MultiHead(width, heads, key_dim=annotation_dim, dropout=dropout)
        self.feed_forward = FeedForward(width, inner_width, dropout)
        self.around_self = AroundSubLayer(width, dropout)
        self.around_cross = AroundSubLayer(width, dropout)
        self.around_network = AroundSubLayer(width, dropout)

    def forward(
        self,
        words: Float[Tensor, "B N T W"],
        past: Float[Tensor, "B N S W2"],
        regions: Float[Tensor, "B L W2"],
        mask: Bool[Tensor, "B 1 L"] | None = None,
        with_weights: bool = False,
    ) -> tuple[
        Float[Tensor, "B N T W"], Float[Tensor, "B N S2 W2"], Float[Tensor, "B H N T L"] | None
    ]:
        """Read T words of every caption: the first T words, or one word after others.

        Args:
            words: the layer's input.
            past: keys and values of earlier words; S may be zero.
            regions: keys and values of the image, from `cross_attention.project`.
            mask: True for regions that may be attended.
            with_weights: whether to return weights over regions.

        Returns:
            The layer's output, keys and values of all words so far, and the weights.
        """
        captions, count = words.shape[:2], words.shape[2]
        query = self.around_self.norm(words)
        past = torch.cat([past, self.self_attention.project(query)], dim=2)
        causal = None
        if count > 1:  # each word sees itself and those before it (section 3.2.3)
            causal = torch.ones(1, count, count, dtype=torch.bool, device=words.device).tril()
        context, _ = self.self_attention(query.flatten(0, 1), past.flatten(0, 1), causal)
        words = self.around_self(words, context.unflatten(0, captions))

        query = self.around_cross.norm(words).flatten(1, 2)
        context, weights = self.cross_attention(query, regions, mask, with_weights)
        words = self.around_cross(words, context.unflatten(1, words.shape[1:3]))
        if weights is not None:
            weights = weights.unflatten(2, words.shape[1:3])

        words = self.around_network(words, self.feed_forward(self.around_network.norm(words)))
        return words, past, weights


@dataclass(frozen=True)
class TransformerMemory(Memory):
    """Annotation vectors with their keys and values, side by side, for every layer."""

    keys: tuple[Float[Tensor, "B L W2"], ...]


class TransformerDecoder(Decoder):
    """Layers of self-attention over the words so far and attention over the regions.

    The state is the cache of keys and values of the words so far, so that a step computes one word.
    The attention weights are the mean over the heads of the last layer.

    Raw features of a CNN are many and large: give the model an `Adapter` that projects and
    normalises them (Cornia et al. 2020).

    Args:
        annotation_dim: D.
        vocab_size: V, special tokens included.
        width: W, of the model and of word embeddings.
        layers: number of layers.
        heads: of every attention; a divisor of the width.
        inner_width: of the position-wise networks.
        dropout: of embeddings, weights, hidden layers and the output of each sub-layer.
        tie_embeddings: use one matrix for word embeddings and the output layer.
    """

    limits: ClassVar = {
        "width": range(1, 4097),
        "layers": range(1, 101),
        "heads": range(1, 257),
    }
    removed: ClassVar = {"norm_first": True}

    def __init__(
        self,
        annotation_dim: int,
        vocab_size: int,
        width: int = 512,
        layers: int = 6,
        heads: int = 8,
        inner_width: int = 2048,
        dropout: float = 0.1,
        tie_embeddings: bool = True,
    ) -> None:
        super().__init__(annotation_dim, vocab_size)
        self.width = width
        self.embedding = nn.Embedding(vocab_size, width, padding_idx=PAD)
        decoder_layers = nn.ModuleList(
            DecoderLayer(
                width,
                heads,
                inner_width=inner_width,
                dropout=dropout,
                annotation_dim=annotation_dim,
            )
            for _ in range(layers)
        )
        self.layers = cast("Sequence[DecoderLayer]", decoder_layers)
        self.norm = nn.LayerNorm(width)
        self.output = nn.Linear(width, vocab_size)
        self.dropout = nn.Dropout(dropout)
        nn.init.normal_(self.embedding.weight, std=width**-0.5)
        nn.init.zeros_(self.embedding.weight.detach()[PAD])
        nn.init.zeros_(self.output.bias)
        if tie_embeddings:
            self.output.weight = self.embedding.weight

    def remember(
        self, annotations: Float[Tensor, "B L D"], mask: Bool[Tensor, "B L"] | None = None
    ) -> TransformerMemory:
        keys = (layer.cross_attention.project(annotations) for layer in self.layers)
        return TransformerMemory(annotations, mask, tuple(keys))

    def start(self, memory: Memory, n: int) -> State:
        empty = memory.annotations.new_zeros(len(memory.annotations), n, 0, 2 * self.width)
        return {f"layer_{number}": empty for number in range(len(self.layers))}

    def step(self, tokens: Int[Tensor, "B N"], state: State, memory: Memory) -> Step:
        words, weights, state = self._read(tokens[:, :, None], state, memory)
        return Step(self.output(words).squeeze(2), weights.squeeze(2), state)

    def teacher_forcing(
        self, memory: Memory, tokens: Int[Tensor, "B N T"]
    ) -> tuple[Float[Tensor, "B N T V"], Float[Tensor, "B N T L"]]:
        """All words at once: the causal mask hides later words from each."""
        words, weights, _ = self._read(tokens, self.start(memory, tokens.shape[1]), memory)
        return self.output(words), weights

    def _read(
        self, tokens: Int[Tensor, "B N T"], state: State, memory: Memory
    ) -> tuple[Float[Tensor, "B N T W"], Float[Tensor, "B N T L"], State]:
        """The output layer's input, weights, and the state after T words of every caption."""
        assert isinstance(memory, TransformerMemory)
        # Word embeddings and positions (sections 3.4 and 3.5).
        words = self.embedding(tokens) * self.width**0.5
        precision = torch.promote_types(words.dtype, torch.float32)
        positions = torch.arange(tokens.shape[2], device=words.device, dtype=precision)
        positions = positions + state["layer_0"].shape[2]  # after earlier words
        words = self.dropout(words + sinusoids(positions, self.width).to(words.dtype))

        mask = None if memory.mask is None else memory.mask[:, None]
        next_state: State = {}
        for number, layer in enumerate(self.layers):
            name, is_last = f"layer_{number}", number == len(self.layers) - 1
            words, next_state[name], weights = layer(
                words, state[name], memory.keys[number], mask, with_weights=is_last
            )
        return self.norm(words), weights.mean(dim=1), next_state
