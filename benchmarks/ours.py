"""Our side of the comparison: what a training step and a search of this package are.

Shapes: B photos, N captions per photo, L regions, D annotation width, S tokens from BOS to EOS.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from captioning.data.vocabulary import PAD
from captioning.kernels import accelerated, accelerated_search
from captioning.kernels.compiled import compile_from_now
from captioning.models import Decoder
from captioning.models.losses import doubly_stochastic_penalty
from captioning.search import Decoded, Search


def loss(
    decoder: Decoder,
    annotations: Float[Tensor, "B L D"],
    tokens: Int[Tensor, "B N S"],
    precision: str = "fp32",
) -> Float[Tensor, ""]:
    """What the training minimises, without label smoothing.

    Args:
        decoder: in training mode.
        annotations: the annotation vectors.
        tokens: the captions.
        precision: ``fp32``, or ``bf16`` for autocast.
    """
    with autocast(annotations.device, precision):
        decoder = accelerated(decoder)
        cross_entropy, weights = decoder.cross_entropy(decoder.remember(annotations), tokens)
        real = tokens[..., 1:] != PAD
        return (cross_entropy + doubly_stochastic_penalty(weights, real)) / real.sum()


def training_step(
    decoder: Decoder,
    annotations: Float[Tensor, "B L D"],
    tokens: Int[Tensor, "B N S"],
    optimizer: torch.optim.Optimizer,
    precision: str,
) -> None:
    """Forward, backward, optimizer; compiled, as a training is after its first steps."""
    compile_from_now()
    optimizer.zero_grad()
    loss(decoder, annotations, tokens, precision).backward()
    optimizer.step()
    compile_from_now(False)


@torch.no_grad()
def searched(
    decoder: Decoder,
    annotations: Float[Tensor, "B L D"],
    search: Search,
    precision: str = "fp32",
) -> Decoded:
    """The captions of all photos."""
    with autocast(annotations.device, precision):
        decoder = accelerated(decoder)
        return accelerated_search(search)(decoder, decoder.remember(annotations))


def autocast(device: torch.device, precision: str) -> torch.autocast:
    """Arithmetic of this precision."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16")
