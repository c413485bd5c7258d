"""A decoder of random parameters whose captions end when people's do.

How long a search takes depends on how long captions are, and those of random parameters never end,
or at once. Here one unit of the LSTM counts the words; the end of the caption becomes likely with
its count.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from benchmarks.ours import searched
from benchmarks.sizes import MEAN_WORDS, Size, random_decoder
from captioning.data.vocabulary import EOS, PAD
from captioning.models import LSTMDecoder
from captioning.search import Greedy

DECISION = 5.0
"""Standard deviation of the logits: the best of thousands of words is then about as likely as a
trained model's."""

PACE = 0.08
"""What the counting cell grows by with every word; its tanh is still far from one at the end."""

STEEPNESS = 14.0
"""Logit of the end over the counting unit's output: half a nat more with every word, so that the
lengths of captions differ by about two words."""

OPEN = 10.0
"""A gate's input that leaves it open."""

PROBED = 8
"""Photos that the bias of the end is set by."""


def ending_decoder(size: Size, annotations: Float[Tensor, "B L D"]) -> LSTMDecoder:
    """A decoder in evaluation mode that ends its captions of these photos like people do."""
    decoder = random_decoder(size).eval()
    with torch.no_grad():
        _make_decisive(decoder, size)
        _make_count(decoder, size.hidden_dim)
        decoder.to(annotations.device, annotations.dtype)
        _set_length(decoder, annotations[:PROBED])
    return decoder


def _make_decisive(decoder: LSTMDecoder, size: Size) -> None:
    """Logits that differ as much as a trained model's, and by the last word above all."""
    generator = torch.Generator().manual_seed(0)
    decoder.embedding.weight.normal_(generator=generator)
    decoder.embedding.weight[PAD] = 0.0
    spread = DECISION / math.sqrt(size.hidden_dim)
    decoder.output.weight.normal_(std=spread, generator=generator)
    decoder.output.weight[EOS] = 0.0


def _make_count(decoder: LSTMDecoder, units: int) -> None:
    """Let unit 0 count words, and coordinate 0 of the deep output show nothing but its count."""
    for gates in (decoder.word_gates, decoder.hidden_gates, decoder.context_gates):
        gates.weight.view(4, units, -1)[:, 0] = 0.0
    steady = torch.tensor([OPEN, OPEN, math.atanh(PACE), OPEN])  # i, f, g, o
    decoder.word_gates.bias.view(4, units)[:, 0] = steady
    decoder.initial_cell.weight[0] = 0.0
    decoder.initial_cell.bias[0] = 0.0
    decoder.embedding.weight[:, 0] = 0.0
    decoder.output_hidden.weight[0] = 0.0
    decoder.output_hidden.weight[0, 0] = 1.0
    decoder.output_context.weight[0] = 0.0
    decoder.output.weight[:, 0] = 0.0
    decoder.output.weight[EOS, 0] = STEEPNESS


def _set_length(decoder: LSTMDecoder, annotations: Float[Tensor, "B L D"]) -> None:
    """Find, by bisection, the bias of the end at which captions have the length of people's."""
    low, high = -2 * STEEPNESS, 2 * STEEPNESS
    for _ in range(12):
        middle = (low + high) / 2
        decoder.output.bias[EOS] = middle
        words = searched(decoder, annotations, Greedy()).tokens != PAD
        length = words.sum(dim=-1).double().mean().item() - 1  # without the end
        low, high = (middle, high) if length > MEAN_WORDS else (low, middle)
