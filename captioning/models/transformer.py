"""A transformer that writes captions (Vaswani et al. 2017, over the regions of an image).

Shapes: B images, N captions per image, L regions, D annotation width, T words, W width
of the model, H heads, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from captioning.data.vocabulary import PAD
from captioning.errors import InputError
from captioning.models.attention import check_every_image_has_a_region
from captioning.models.attention_masks import causal_mask, padding_mask
from captioning.models.decoder import Decoder, Memory, State, Step
from captioning.models.multi_head import KeysValues, head_names, map_of
from captioning.models.past_words import as_state, count, of_state
from captioning.models.positions import sinusoids
from captioning.models.region_encoder import RegionEncoder
from captioning.models.transformer_layers import DecoderLayer
from captioning.numbers import (
    AnnotationWidth,
    Grid,
    Heads,
    Layers,
    OptionalLayers,
    ShareBelowOne,
    VocabularySize,
    Width,
)


@dataclass(frozen=True)
class TransformerMemory(Memory):
    """What the transformer remembers of its images.

    Attributes:
        keys: of the regions, by layer.
        values: the same.
    """

    keys: tuple[Float[Tensor, "B L W"], ...]
    values: tuple[Float[Tensor, "B L W"], ...]


class TransformerDecoder(Decoder):
    """Layers of self-attention over the words so far and attention over the regions.

    Annotation vectors are projected (linear, ReLU, dropout) and normalised, as Cornia et al. (2020)
    do: dot products with raw features of a CNN, many and large, give weights that hardly learn.
    The state holds the keys and values of the words so far, so that a step computes one word; in
    blocks, so that it copies few of them (`captioning.models.past_words` tells the plain form).

    Args:
        annotation_dim: D, width of an annotation vector.
        vocab_size: V, special tokens included.
        width: W, of the model; of word embeddings as well.
        layers: how many.
        heads: H of every attention; a divisor of the width.
        inner_width: of the position-wise networks.
        dropout: of embeddings, of weights, of hidden layers and of what each sub-layer adds.
        annotation_dropout: of the projected annotation vectors.
        norm_first: layer norm before each sub-layer, and once before the output; after each
            sub-layer, as published, if not.
        tie_embeddings: one matrix for the words read and the words scored.
        region_layers: of self-attention over the regions before the first word; 0 for none.
        grid_columns: columns of the encoder's grid, for these layers; none if it is square.
        map_layer: the layer, counted from 1, whose attention over the regions is reported; the
            last one if none.
        map_head: its head, counted from 1; the mean of all heads if none.

    Raises:
        InputError: the width cannot be divided among the heads, or there is no such layer or head.
    """

    def __init__(
        self,
        annotation_dim: AnnotationWidth,
        vocab_size: VocabularySize,
        width: Width = 512,
        layers: Layers = 6,
        heads: Heads = 8,
        inner_width: Width = 2048,
        dropout: ShareBelowOne = 0.1,
        annotation_dropout: ShareBelowOne = 0.1,
        norm_first: bool = True,
        tie_embeddings: bool = True,
        region_layers: OptionalLayers = 0,
        grid_columns: Grid | None = None,
        map_layer: Layers | None = None,
        map_head: Heads | None = None,
    ) -> None:
        super().__init__(annotation_dim, vocab_size)
        self.width = width
        self.project = nn.Sequential(
            nn.Linear(annotation_dim, width),
            nn.ReLU(),
            nn.Dropout(annotation_dropout),
            nn.LayerNorm(width),
        )
        sizes = heads, inner_width, dropout, norm_first
        self.region_encoder = (
            RegionEncoder(width, region_layers, *sizes, grid_columns) if region_layers else None
        )
        self.embedding = nn.Embedding(vocab_size, width, padding_idx=PAD)
        self.layers = cast(
            "Sequence[DecoderLayer]",
            nn.ModuleList(DecoderLayer(width, *sizes) for _ in range(layers)),
        )
        self.norm = nn.LayerNorm(width) if norm_first else nn.Identity()
        self.output = nn.Linear(width, vocab_size)
        self.dropout = nn.Dropout(dropout)
        self.map_layer = layers if map_layer is None else map_layer
        self.map_head = map_head
        for name, number, most in (
            ("map_layer", self.map_layer, layers),
            ("map_head", map_head or 1, heads),
        ):
            if number > most:
                raise InputError(f"{name}: there are {most}; give a number from 1 to {most}")
        nn.init.normal_(self.embedding.weight, std=width**-0.5)
        nn.init.zeros_(self.embedding.weight.detach()[PAD])
        nn.init.zeros_(self.output.bias)
        if tie_embeddings:
            self.output.weight = self.embedding.weight

    @property
    def _maps(self) -> dict[str, tuple[int, int | None]]:
        """Layer and head of each map by name."""
        return {
            f"layer {layer} {name}": (layer, head)
            for layer in range(1, len(self.layers) + 1)
            for name, head in head_names(self.layers[0].cross_attention.heads).items()
        }

    @property
    def map_names(self) -> tuple[str, ...]:
        """The mean and the heads of every layer: ``layer 1 mean``, ``layer 1 head 1``, ..."""
        return tuple(self._maps)

    @property
    def reported_map(self) -> str:
        """The one whose weights a step gives."""
        chosen = self.map_layer, self.map_head
        return next(name for name, place in self._maps.items() if place == chosen)

    def report_map(self, name: str) -> None:
        """Give the weights of another one from now on.

        Raises:
            InputError: there is no map of this name.
        """
        super().report_map(name)
        self.map_layer, self.map_head = self._maps[name]

    def remember(
        self, annotations: Float[Tensor, "B L D"], mask: Bool[Tensor, "B L"] | None = None
    ) -> TransformerMemory:
        """Projected annotation vectors, and every layer's keys and values of them.

        Raises:
            ValueError: an image has no region to attend to.
        """
        check_every_image_has_a_region(mask)
        annotations = self.project(annotations)
        if self.region_encoder is not None:
            annotations = self.region_encoder(annotations, mask)
        projected = [layer.cross_attention.project(annotations) for layer in self.layers]
        keys, values = zip(*projected, strict=True)
        return TransformerMemory(annotations, mask, keys, values)

    def start(self, memory: Memory, n: int) -> State:
        """Blocks of no words."""
        state: State = {}
        for number, layer in enumerate(self.layers):
            none = memory.annotations.new_zeros(memory.images, n, 0, self.width)
            state |= as_state(number, [layer.self_attention.by_head(KeysValues(none, none))])
        return state

    def step(self, tokens: Int[Tensor, "B N"], state: State, memory: Memory) -> Step:
        """Read one word of every caption and score the next."""
        words, weights, state = self._read(tokens[:, :, None], state, memory)
        return Step(self.output(words).squeeze(2), weights.squeeze(2), state)

    def teacher_forcing(
        self, memory: Memory, tokens: Int[Tensor, "B N T"]
    ) -> tuple[Float[Tensor, "B N T V"], Float[Tensor, "B N T L"]]:
        """All words at once: the causal mask hides from each those after it."""
        words, weights, _ = self._read(tokens, self.start(memory, tokens.shape[1]), memory)
        return self.output(words), weights

    def _read(
        self, tokens: Int[Tensor, "B N T"], state: State, memory: Memory
    ) -> tuple[Float[Tensor, "B N T W"], Float[Tensor, "B N T L"], State]:
        """What the output layer scores, weights, and state after T words of every caption.

        They are its first words, or T is one.
        """
        assert isinstance(memory, TransformerMemory)
        before = count(of_state(0, state))
        words = self._embedded(tokens, before)
        words_mask = causal_mask(tokens.shape[2], device=tokens.device)
        weights: Tensor | None = None
        after: State = {}
        for number, layer in enumerate(self.layers):
            words, past, of_heads = layer(
                words,
                of_state(number, state) if before else (),
                KeysValues(memory.keys[number], memory.values[number]),
                words_mask,
                padding_mask(memory.mask),
                with_weights=number + 1 == self.map_layer,
            )
            after |= as_state(number, past)
            if of_heads is not None:
                weights = map_of(of_heads, self.map_head)
        assert weights is not None
        return self.norm(words), weights, after

    def _embedded(self, tokens: Int[Tensor, "B N T"], before: int) -> Float[Tensor, "B N T W"]:
        """Word embeddings and positions (Vaswani et al. 2017, sections 3.4 and 3.5)."""
        words = self.embedding(tokens) * self.width**0.5
        precision = torch.promote_types(words.dtype, torch.float32)
        places = before + torch.arange(tokens.shape[2], device=words.device, dtype=precision)
        return self.dropout(words + sinusoids(places, self.width).to(words.dtype))
