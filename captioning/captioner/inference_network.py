"""A model as captioners compute with it: on its device, in a precision, with kernels or without.

Shapes: B images, N captions per image, T words, L regions, D annotation width, A adapted width, V
vocabulary.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from captioning.data.vocabulary import BOS
from captioning.device import multiplies_bfloat16_fast
from captioning.kernels import accelerate, in_parts, on_by_default
from captioning.models import Model
from captioning.models.decoder import Memory
from captioning.search import Decoded, Search


class InferenceNetwork:
    """Computes a model's annotation vectors, captions and logits.

    Args:
        model: the plain model, which may be trained or moved meanwhile.
        kernels: whether to use the fast kernels (`captioning.kernels`); defaults to true, unless
            the environment sets ``CAPTIONING_KERNELS=off``.

    Attributes:
        bfloat16: whether to compute in bfloat16, which is faster on some processors. On others,
            and on a GPU, annotation vectors are computed in single precision.
    """

    def __init__(self, model: Model, kernels: bool | None = None) -> None:
        self.model = model
        self.kernels = on_by_default() if kernels is None else kernels
        self.bfloat16 = False
        self._accelerated: tuple[object, Model] | None = None

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return next(self.model.parameters()).device

    @property
    def accelerated(self) -> Model:
        """The model with kernels, which share the parameters of `model`.

        It is `model` itself without kernels, and on a GPU. It is built again when the model moves,
        is frozen, or gets another decoder.
        """
        if not self.kernels:
            return self.model
        trains = any(parameter.requires_grad for parameter in self.model.parameters())
        key = self.device, trains, self.model.decoder
        if self._accelerated is None or self._accelerated[0] != key:
            self._accelerated = key, accelerate(self.model)
        return self._accelerated[1]

    def freeze(self) -> None:
        """Prepare for inference: evaluation mode, no gradients, faster encoding."""
        self.model.eval().requires_grad_(False)
        self._accelerated = None  # its encoder may be of earlier weights
        _ = self.accelerated  # built once, before several threads ask for it

    def encode(self, images: Tensor) -> Float[Tensor, "B L D"]:
        """Compute annotation vectors of images or of cached features; see `Model.encode`."""
        if self.bfloat16 and images.device.type == "cpu" and multiplies_bfloat16_fast():
            with torch.autocast("cpu", torch.bfloat16):
                return in_parts(self.accelerated.encode, images).float()
        return in_parts(self.accelerated.encode, images)

    def adapt(self, annotations: Float[Tensor, "B L D"]) -> Float[Tensor, "B L A"]:
        """Apply the adapter, which gives the vectors that the decoder attends over."""
        with self._precision():
            return self.accelerated.adapter(annotations)

    def remember(self, adapted: Float[Tensor, "B L A"]) -> Memory:
        """Compute what the decoder needs once per image (`Decoder.remember`)."""
        with self._precision():
            return self.accelerated.decoder.remember(adapted)

    def find_captions(self, memory: Memory, search: Search) -> Decoded:
        """Search captions of the images in memory."""
        with self._precision():
            return search(self.accelerated.decoder, memory)

    def teacher_forcing(
        self, memory: Memory, tokens: Int[Tensor, "B N T"]
    ) -> tuple[Float[Tensor, "B N T V"], Float[Tensor, "B N T L"]]:
        """Compute logits and attention weights before each token of finished captions."""
        inputs = F.pad(tokens, (1, -1), value=BOS)
        with self._precision():
            return self.accelerated.decoder.teacher_forcing(memory, inputs)

    def _precision(self) -> AbstractContextManager[Any]:
        """Autocast to bfloat16, if the network computes in it."""
        if self.bfloat16:
            return torch.autocast(self.device.type, torch.bfloat16)
        return nullcontext()
