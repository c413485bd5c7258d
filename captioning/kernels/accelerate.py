"""Replaces the decoder of a model by its kernel."""

import logging
import os

from jaxtyping import Float, Int
from torch import Tensor

from captioning.kernels.fast_lstm import FastLSTM
from captioning.models.decoder import Decoder, Memory
from captioning.models.losses import cross_entropy
from captioning.models.lstm import LSTMDecoder
from captioning.models.model import Model

log = logging.getLogger(__name__)

SWITCH = "CAPTIONING_KERNELS"
"""The environment variable that switches kernels off."""


def on_by_default() -> bool:
    """False if the environment switches kernels off."""
    return os.environ.get(SWITCH, "on").lower() not in ("off", "0", "false", "no")


def accelerate(model: Model) -> Model:
    """The same model with fast kernels, sharing all parameters.

    Train, move, load and save the plain model; the accelerated one follows. Accelerate it again
    after replacing a layer of its decoder or adding a hook there.

    Returns:
        The model itself if its decoder has no kernel, after a log line that says why.
    """
    reason = FastLSTM.why_not(model.decoder)
    if reason is not None:
        kind = type(model.decoder).__name__
        log.info("no kernel for class %s: plain PyTorch, because %s", kind, reason)
        return model
    assert isinstance(model.decoder, LSTMDecoder)
    return Model(model.encoder, model.adapter, FastLSTM.of(model.decoder))


def caption_cross_entropy(
    decoder: Decoder,
    memory: Memory,
    tokens: Int[Tensor, "B N S"],
    label_smoothing: float = 0.0,
    caption_weights: Float[Tensor, "B N"] | None = None,
) -> tuple[Float[Tensor, ""], Float[Tensor, "B N T R"]]:
    """Cross-entropy of captions, summed over all words, in nats; and attention weights.

    A decoder's kernel computes it without holding the logits of all words; weights are then zero at
    PAD, which is undefined otherwise.

    Args:
        decoder: of an accelerated or a plain model.
        memory: of the images.
        tokens: the captions from BOS to EOS; PAD does not count.
        label_smoothing: share of a word's probability spread over the vocabulary.
        caption_weights: factor of each caption's loss; defaults to one.
    """
    if isinstance(decoder, FastLSTM):
        return decoder.cross_entropy(memory, tokens, label_smoothing, caption_weights)
    logits, weights = decoder.teacher_forcing(memory, tokens[..., :-1])
    return cross_entropy(logits, tokens[..., 1:], label_smoothing, caption_weights), weights
