"""Maps made of attention weights alone, or with what they are weights of.

Shapes: B images, N captions per image, L regions, S tokens, T = S - 1 words.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from captioning.maps.reading import Reading
from captioning.maps.word_map import Maps, WordMap, shares


class AttentionMap(WordMap):
    """The attention while the word was written, computed before the word is known (eq. 4-6)."""

    takes_one_pass = True

    @torch.no_grad()
    def __call__(self, reading: Reading) -> Maps:
        """The decoder's weights under teacher forcing."""
        _, weights = reading.decoder(reading.annotations, reading.tokens[..., :-1])
        return weights.unflatten(-1, reading.grid)


class HeadMap(WordMap):
    """The attention of one layer and head, where a model has several.

    Args:
        name: of the map among the decoder's `map_names`.
    """

    takes_one_pass = True

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, reading: Reading) -> Maps:
        """Its weights under teacher forcing; the decoder reports the same map afterwards."""
        decoder = reading.decoder
        before = decoder.reported_map
        assert before is not None
        decoder.report_map(self.name)
        try:
            return AttentionMap()(reading)
        finally:
            decoder.report_map(before)


class AttentionNormMap(WordMap):
    """Attention times the norm of the vectors that it weighs (Kobayashi et al. 2020, section 3).

    A region adds its weight times its vector to the context: a large weight of a short vector adds
    little. The vectors are those that the decoder's memory makes contexts of; what a transformer's
    heads make of these is left out.
    """

    takes_one_pass = True

    @torch.no_grad()
    def __call__(self, reading: Reading) -> Maps:
        """Weights times norms, as shares."""
        reading.need_one_grid()
        return shares(weights_by_norm(reading), reading.grid)


class NextAttentionMap(WordMap):
    """The attention of the step after the word, the first one that has read the word."""

    takes_one_pass = True

    @torch.no_grad()
    def __call__(self, reading: Reading) -> Maps:
        """The decoder's weights, one word later."""
        _, weights = reading.decoder(reading.annotations, reading.tokens)
        return weights[..., 1:, :].unflatten(-1, reading.grid)


@torch.no_grad()
def weights_by_norm(reading: Reading) -> Float[Tensor, "B N T L"]:
    """Attention weights times the norms of the vectors that contexts are made of."""
    memory = reading.decoder.remember(reading.annotations)
    _, weights = reading.decoder.teacher_forcing(memory, reading.tokens[..., :-1])
    return weights * memory.annotations.norm(dim=-1)[:, None, None]
