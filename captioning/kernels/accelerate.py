"""Replaces the parts of a model by their kernels.

Shapes: B images, N captions per image, L regions, D annotation width, S tokens from BOS to EOS.
"""

import logging
import os

from jaxtyping import Float, Int
from torch import Tensor, nn

from captioning.kernels.convolutions import folded
from captioning.kernels.fast_lstm import FastLSTM
from captioning.models.decoder import Decoder, Memory
from captioning.models.encoder import Encoder
from captioning.models.lstm import LSTMDecoder
from captioning.models.model import Model

log = logging.getLogger(__name__)

SWITCH = "CAPTIONING_KERNELS"
"""The environment variable that switches kernels off."""


def on_by_default() -> bool:
    """False if the environment switches kernels off."""
    return os.environ.get(SWITCH, "on").lower() not in ("off", "0", "false", "no")


def accelerate(model: Model) -> Model:
    """The same model with fast kernels where it has them; it shares all parameters with `model`.

    Train, move, load and save the plain model: the accelerated one follows. Logs each class that
    has no kernel and is computed by the plain code. Call it again after replacing a layer or adding
    a hook to the decoder.
    """
    return AcceleratedModel(model.encoder, model.adapter, accelerate_decoder(model.decoder))


def accelerate_decoder(decoder: Decoder) -> Decoder:
    """The decoder's kernel, with the same parameters; the decoder itself if it has none."""
    reason = FastLSTM.why_not(decoder)
    if reason is None:
        assert isinstance(decoder, LSTMDecoder)
        return FastLSTM.of(decoder)
    log.info("no kernel for this %s (%s): plain PyTorch is used", type(decoder).__name__, reason)
    return decoder


class AcceleratedModel(Model):
    """Equals the `Model` whose parts it has.

    While nothing in the encoder is trained, it encodes by a copy with folded batch norms.
    """

    _folded: "tuple[_State, Encoder] | None" = None

    def encode(self, images: Tensor) -> Float[Tensor, "B L D"]:
        """The encoder's annotation vectors of images, or of their cached features."""
        if images.is_floating_point() or not _can_be_folded(self.encoder):
            return super().encode(images)
        state = _state(self.encoder)
        if self._folded is None or self._folded[0] != state:
            self._folded = state, folded(self.encoder)  # in a tuple: not a part of this module
        return self._folded[1](images)

    def cross_entropy(
        self,
        memory: Memory,
        tokens: Int[Tensor, "B N S"],
        label_smoothing: float = 0.0,
        caption_weights: Float[Tensor, "B N"] | None = None,
    ) -> tuple[Float[Tensor, ""], Float[Tensor, "B N S-1 R"]]:
        """Cross-entropy of captions, summed over all words, in nats; and attention weights."""
        if isinstance(self.decoder, FastLSTM):
            return self.decoder.cross_entropy(memory, tokens, label_smoothing, caption_weights)
        return super().cross_entropy(memory, tokens, label_smoothing, caption_weights)


_State = tuple[tuple[int, int], ...]


def _can_be_folded(encoder: nn.Module) -> bool:
    """Whether the encoder has batch norms, and neither a parameter nor a statistic is trained."""
    norms = [part for part in encoder.modules() if isinstance(part, nn.BatchNorm2d)]
    return (
        len(norms) > 0
        and not any(norm.training for norm in norms)
        and not any(parameter.requires_grad for parameter in encoder.parameters())
    )


def _state(encoder: nn.Module) -> _State:
    """Addresses of the encoder's tensors, and PyTorch's counts of their changes in place."""
    tensors = [*encoder.parameters(), *encoder.buffers()]
    return tuple((part.data_ptr(), part._version) for part in tensors)
