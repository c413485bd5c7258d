"""The same numbers as `captioning.models` and `captioning.search`, in a fraction of the time.

Each kernel equals one plain class, with its parameters and settings. Subclasses and classes of a
user's own have no kernel: the plain code computes them. Nothing in `models` or `search` imports
this package.

The environment variable ``CAPTIONING_KERNELS=off`` switches all kernels off; their files are then
not even imported.
"""

import logging
import os
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from captioning.models.decoder import Decoder, Memory
from captioning.models.losses import cross_entropy
from captioning.models.model import Model

log = logging.getLogger(__name__)

SWITCH = "CAPTIONING_KERNELS"
"""Environment variable that switches kernels off."""

COMPILES = ("cuda",)
"""Devices on which a long training compiles the plain model, instead of using kernels."""

CPU_PIXELS, GPU_PIXELS = 2**18, 2**21
"""Maximum pixels to encode at once: on a CPU 5 images of 224 x 224, or 2 of 320 x 320."""


def on_by_default() -> bool:
    """False if the environment switches kernels off."""
    return os.environ.get(SWITCH, "on").lower() not in ("off", "0", "false", "no")


def accelerate(model: Model) -> Model:
    """Give a model fast kernels, which share all parameters that may be trained.

    Train, move, load and save the plain model; the accelerated one follows. Accelerate it again
    after replacing a layer of its decoder, adding a hook there, freezing or moving it. A frozen
    model gets a `folded` encoder.

    Returns:
        The accelerated model; the model itself on a GPU, where kernels are no faster, and if
        neither part has a kernel. A log line names a decoder without a kernel.
    """
    device = next(model.parameters()).device.type
    if device != "cpu" or device in COMPILES:
        return model
    from captioning.kernels.convolutions import folded
    from captioning.kernels.fast_lstm import FastLSTM, unsupported_reason

    encoder, decoder = model.encoder, model.decoder
    if not any(parameter.requires_grad for parameter in model.parameters()):
        encoder = folded(encoder)
    if (reason := unsupported_reason(decoder)) is None:
        decoder = FastLSTM(cast("Any", decoder))
    else:
        class_name = type(decoder).__name__
        log.info("no kernel for class %s: plain PyTorch, because %s", class_name, reason)
    if encoder is model.encoder and decoder is model.decoder:
        return model
    return Model(encoder, model.adapter, decoder)


def encoding_for_training(network: Model) -> Callable[[Tensor], Tensor]:
    """The function that encodes images in training; compiled on a GPU (`COMPILES`).

    Args:
        network: the trained model, or its accelerated one.
    """
    if next(network.parameters()).device.type in COMPILES:
        from captioning.kernels.compiled import Compiled

        return Compiled(network.encode, trains=True)
    from captioning.kernels.convolutions import keep_depthwise_precise

    keep_depthwise_precise(network.encoder)
    if getattr(network.decoder, "drops_weights", False):
        log.info("no kernel in training: plain PyTorch, because the attention drops weights")
    return network.encode


def plain(decoder: Decoder) -> Decoder:
    """The decoder whose kernel this is, or the decoder itself if it is no kernel."""
    return cast("Decoder", getattr(decoder, "plain", decoder))


def caption_cross_entropy(
    decoder: Decoder,
    memory: Memory,
    tokens: Int[Tensor, "B N S"],
    label_smoothing: float = 0.0,
) -> tuple[Float[Tensor, ""], Float[Tensor, "B N T L"]]:
    """Cross-entropy of captions, summed over all words, in nats; and attention weights.

    A kernel computes no logits of padding, and its weights are zero at PAD; those of plain decoders
    are undefined there.

    Args:
        decoder: of an accelerated or a plain model.
        memory: of the images.
        tokens: the captions from BOS to EOS.
        label_smoothing: as of `captioning.models.losses.cross_entropy`.
    """
    if hasattr(decoder, "plain"):
        kernel: Any = decoder
        return kernel.cross_entropy(memory, tokens, label_smoothing)
    losses = plain_losses
    if memory.annotations.device.type in COMPILES and on_by_default():
        from captioning.kernels.compiled import losses
    return losses(decoder, memory, tokens, label_smoothing)


def plain_losses(
    decoder: Decoder, memory: Memory, tokens: Int[Tensor, "B N S"], label_smoothing: float
) -> tuple[Float[Tensor, ""], Float[Tensor, "B N T L"]]:
    """`caption_cross_entropy` by the plain model."""
    logits, weights = decoder.teacher_forcing(memory, tokens[..., :-1])
    return cross_entropy(logits, tokens[..., 1:], label_smoothing), weights


def in_parts(encode: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
    """Equals `encode(images)` without gradients, a few images at a time.

    Feature maps of many images do not fit a CPU's caches, take a third longer per image, and fill
    the memory. Cached features, which are floats, are encoded at once.
    """
    pixels = CPU_PIXELS if images.device.type == "cpu" else GPU_PIXELS
    chunk_size = max(1, pixels // images[0, 0].numel())
    if images.is_floating_point() or len(images) <= chunk_size:
        return encode(images)
    return torch.cat([encode(chunk) for chunk in images.split(chunk_size)])


def fast_encoding(network: nn.Module) -> Callable[[Tensor], Tensor]:
    """Equals the network in inference: `folded`, and `in_parts`."""
    from captioning.kernels.convolutions import folded

    return partial(in_parts, folded(network))
