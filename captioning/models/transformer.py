"""A transformer that writes captions (Vaswani et al. 2017, over the regions of an image).

Shapes: B images, N captions per image, L regions, D annotation width, T words, W width of the
model, W2 = 2 W, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from captioning.data.vocabulary import PAD
from captioning.models.decoder import Decoder, Memory, State, Step
from captioning.models.transformer_layers import DecoderLayer, sinusoids


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
        annotation_dim: D, width of an annotation vector.
        vocab_size: V, special tokens included.
        width: W, of the model and of word embeddings.
        layers: number of layers.
        heads: of every attention; a divisor of the width.
        inner_width: of the position-wise networks.
        dropout: of embeddings, weights, hidden layers and the output of each sub-layer.
        tie_embeddings: use one matrix for the words read and the words scored.
    """

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
        self.layers = cast(
            "Sequence[DecoderLayer]",
            nn.ModuleList(
                DecoderLayer(width, heads, inner_width, dropout, annotation_dim)
                for _ in range(layers)
            ),
        )
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
        # Word embeddings and positions (Vaswani et al. 2017, sections 3.4 and 3.5).
        words = self.embedding(tokens) * self.width**0.5
        precision = torch.promote_types(words.dtype, torch.float32)
        places = torch.arange(tokens.shape[2], device=words.device, dtype=precision)
        places = places + state["layer_0"].shape[2]  # after the words before
        words = self.dropout(words + sinusoids(places, self.width).to(words.dtype))

        mask = None if memory.mask is None else memory.mask[:, None]
        after: State = {}
        for number, layer in enumerate(self.layers):
            name, is_last = f"layer_{number}", number == len(self.layers) - 1
            words, after[name], weights = layer(
                words, state[name], memory.keys[number], mask, with_weights=is_last
            )
        return self.norm(words), weights.mean(dim=1), after
