"""Replaces the decoder of a model by its kernel."""

import logging
import os

from captioning.kernels.fast_lstm import FastLSTM
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
