"""A model prepared to run: images in, captions as tokens out."""

from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from captioning.data.vocabulary import BOS
from captioning.kernels import (
    accelerate,
    accelerate_search,
    folded,
    in_parts,
    multiplies_bfloat16_fast,
    on_by_default,
)
from captioning.models import Model
from captioning.models.decoder import Memory
from captioning.search import BeamSearch, Decoded, Search

Self = TypeVar("Self", bound="Engine")


class Engine:
    """A model with its search, run by the fast kernels where they are faster.

    Args:
        model: encoder, adapter and decoder.
        search: the default search; beam search if None.
        kernels: whether to use the fast kernels (`captioning.kernels`); None for true, unless the
            environment sets ``CAPTIONING_KERNELS=off``.

    Attributes:
        fast: the accelerated model, which shares the parameters of `model`; `model` itself without
            kernels.
        bfloat16: whether to compute in bfloat16, which is faster on some processors. On others,
            and on a GPU, annotation vectors are computed in single precision.
    """

    def __init__(
        self, model: Model, search: Search | None = None, kernels: bool | None = None
    ) -> None:
        self.model = model
        self.search = search or BeamSearch()
        self.kernels = on_by_default() if kernels is None else kernels
        self.fast = accelerate(model) if self.kernels else model
        self.bfloat16 = False

    def to(self: Self, device: str | torch.device) -> Self:
        """Move the model to a device; returns this object.

        On a GPU, TF32 is off from now on, whose annotation vectors differ by 1 % from a CPU's.
        """
        if torch.device(device).type == "cuda":
            torch.backends.cudnn.allow_tf32 = False
        self.model.to(device)
        self.fast.to(device)
        return self

    def freeze(self: Self) -> Self:
        """Prepare a model that will not be trained any more: evaluation mode, faster encoding."""
        self.model.eval().requires_grad_(False)
        if self.kernels:
            encoder = folded(self.model.encoder)
            self.fast = accelerate(Model(encoder, self.model.adapter, self.model.decoder)).eval()
        return self

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return next(self.model.parameters()).device

    def encode(self, images: Tensor) -> Float[Tensor, "B L D"]:
        """Annotation vectors of images or of cached features, as `Model.encode` takes them."""
        if self.bfloat16 and images.device.type == "cpu" and multiplies_bfloat16_fast():
            with self._precision(images.device):
                return in_parts(self.fast.encode, images).float()
        return in_parts(self.fast.encode, images)

    def remember(self, annotations: Float[Tensor, "B L D"]) -> Memory:
        """Everything that the decoder computes once per image."""
        model, _ = self.for_searching(annotations.device)
        with self._precision(annotations.device):
            return model.remember(annotations)

    def decode(
        self, memory: Memory | Float[Tensor, "B L D"], search: Search | None = None
    ) -> Decoded:
        """Captions as tokens, by `search` or the default search.

        Args:
            memory: by `remember`, or the annotation vectors.
            search: how words are chosen.
        """
        if isinstance(memory, Tensor):
            memory = self.remember(memory)
        device = memory.annotations.device
        model, search = self.for_searching(device, search)
        with self._precision(device):
            return search(model.decoder, memory)

    def logits(self, memory: Memory, tokens: Int[Tensor, "B N T"]) -> Float[Tensor, "B N T V"]:
        """The logits before each token of finished captions, read again by teacher forcing."""
        model, _ = self.for_searching(tokens.device)
        with self._precision(tokens.device):
            return model.decoder.teacher_forcing(memory, F.pad(tokens, (1, -1), value=BOS))[0]

    def for_searching(
        self, device: torch.device, search: Search | None = None
    ) -> tuple[Model, Search]:
        """The model and a search, both accelerated on a CPU.

        On a GPU the plain ones are faster: a kernel saves arithmetic by decisions that the GPU
        would have to wait for.
        """
        search = search or self.search
        if self.kernels and device.type == "cpu":
            return self.fast, accelerate_search(search)
        return self.model, search

    def _precision(self, device: torch.device) -> AbstractContextManager[object]:
        if self.bfloat16:
            return torch.autocast(device.type, torch.bfloat16)
        return nullcontext()
