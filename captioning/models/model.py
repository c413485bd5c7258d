"""The model: encoder, adapter and decoder.

Shapes: B images, N captions per image, H x W pixels, L regions, D annotation width, T words, V
vocabulary.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from captioning.errors import InputError
from captioning.models.adapter import Adapter
from captioning.models.decoder import Decoder, Memory
from captioning.models.encoder import Encoder

MAX_PARAMETERS = 500_000_000
"""Maximum number of parameters of a model: two gigabytes in single precision."""


class Model(nn.Module):
    """A captioning model: encoder, adapter and decoder.

    Raises:
        InputError: the widths of two parts differ.
    """

    def __init__(self, encoder: Encoder, adapter: Adapter, decoder: Decoder) -> None:
        super().__init__()
        for name, width, input_width in (
            ("adapter", adapter.annotation_dim, encoder.annotation_dim),
            ("decoder", decoder.annotation_dim, adapter.output_dim),
        ):
            if width != input_width:
                raise InputError(
                    f"the {name} expects annotation vectors of width {width} but gets {input_width}"
                )
        self.encoder = encoder
        self.adapter = adapter
        self.decoder = decoder

    @property
    def config(self) -> dict[str, Any]:
        """The configs of its parts."""
        parts = {"encoder": self.encoder, "adapter": self.adapter, "decoder": self.decoder}
        return {name: part.config for name, part in parts.items()}

    def encode(self, images: Tensor) -> Float[Tensor, "B L D"]:
        """Compute the encoder's annotation vectors.

        Args:
            images: uint8 (B, 3, H, W); or floats (B, P, C), cached features from the encoder's
                frozen stages.
        """
        if images.is_floating_point():
            return self.encoder.trained_part(images.float())
        return self.encoder(images)

    def remember(
        self, annotations: Float[Tensor, "B L D"], mask: Bool[Tensor, "B L"] | None = None
    ) -> Memory:
        """Compute the decoder's memory from annotation vectors of `encode`, once per image."""
        return self.decoder.remember(self.adapter(annotations, mask), mask)

    def forward(
        self,
        annotations: Float[Tensor, "B L D"],
        tokens: Int[Tensor, "B N T"],
        mask: Bool[Tensor, "B L"] | None = None,
    ) -> tuple[Float[Tensor, "B N T V"], Float[Tensor, "B N T L"]]:
        """Teacher forcing: logits for the word after each of `tokens`, and attention weights."""
        return self.decoder.teacher_forcing(self.remember(annotations, mask), tokens)


@contextmanager
def limited_parameters() -> Iterator[None]:
    """Raise InputError if modules built in the block have more than `MAX_PARAMETERS`."""
    count = 0

    def add(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        nonlocal count
        count += 0 if parameter is None else parameter.numel()
        if count > MAX_PARAMETERS:
            raise InputError(
                f"the model has more than {MAX_PARAMETERS:,} parameters; choose smaller widths"
            )

    hook = register_module_parameter_registration_hook(add)
    try:
        yield
    finally:
        hook.remove()
