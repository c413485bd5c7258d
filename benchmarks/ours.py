"""This package's side of each task, and the only file that knows the package's API.

Runs with the package of this checkout and with those from before `captioning.models.Model`.

Shapes: B photos, N captions per photo, L regions, D annotation width, S tokens from BOS to EOS.
"""

from collections.abc import Sequence
from contextlib import nullcontext, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from benchmarks.layers import never_end
from benchmarks.sizes import Size
from captioning.captioner import Captioner
from captioning.data.preprocessing import Preprocessing
from captioning.data.vocabulary import PAD, SPECIAL, Vocabulary
from captioning.models import CNNEncoder, LSTMDecoder
from captioning.models.losses import doubly_stochastic_penalty
from captioning.search import BeamSearch, Greedy

kernels: Any = import_module("captioning.kernels")
models: Any = import_module("captioning.models")


class Ours:
    """The paper's model with random parameters, accelerated.

    Args:
        size: of everything.
        dropout: of word embeddings, of the deep output, and of projected annotation vectors.
    """

    def __init__(self, size: Size, dropout: float = 0.5) -> None:
        torch.manual_seed(0)
        self.encoder = random_encoder(size)
        annotation_dropout = dropout if size.projection_dim else 0.0
        hidden = size.hidden_dim
        widths: Any = {
            **{"vocab_size": size.vocab_size, "embedding_dim": hidden, "hidden_dim": hidden},
            **{"attention_dim": hidden, "dropout": dropout},
        }
        self.decoder: nn.Module
        self.parts: tuple[Any, ...]
        self.adapter: nn.Module = nn.Identity()
        if hasattr(models, "Model"):
            self.adapter = models.Adapter(
                size.annotation_dim, size.projection_dim, annotation_dropout
            )
            self.decoder = LSTMDecoder(size.width, **widths)
            self.parts = (models.Model(self.encoder, self.adapter, self.decoder),)
        else:
            projection: Any = {
                "projection_dim": size.projection_dim,
                "annotation_dropout": annotation_dropout,
            }
            self.decoder = LSTMDecoder(size.annotation_dim, **widths, **projection)
            self.parts = (self.encoder, self.decoder)
        self.fast: nn.Module | None = None
        self.trained = nn.ModuleList([self.adapter, self.decoder])
        with suppress(AttributeError):  # as commands do; before, importing the package did
            import_module("captioning.commands").keep_freed_memory()

    def to(self, device: torch.device, dtype: torch.dtype = torch.float32) -> "Ours":
        """Move all parameters."""
        for part in self.parts:
            part.to(device, dtype)
        return self

    def prepare_training(self) -> None:
        """Swap in the kernels of a training, and let them compile."""
        for part in self.parts:
            part.train()
        if hasattr(kernels, "accelerate"):
            self.fast = kernels.accelerate(*self.parts)
        with suppress(ImportError, AttributeError):
            import_module("captioning.kernels.compiled").compile_from_now()

    def loss(
        self, annotations: Float[Tensor, "B L D"], tokens: Int[Tensor, "B N S"]
    ) -> Float[Tensor, ""]:
        """What a training minimises, without label smoothing."""
        model: Any = self.fast
        if model is None:  # an earlier package, which accelerates decoders at every step
            model = kernels.accelerated(self.decoder)
        by_words = getattr(kernels, "caption_cross_entropy", None)
        if by_words is None:  # an earlier package
            decoder = model if hasattr(model, "cross_entropy") else model.decoder
            cross_entropy, weights = decoder.cross_entropy(model.remember(annotations), tokens)
        else:
            cross_entropy, weights = by_words(model.decoder, model.remember(annotations), tokens)
        real = tokens[..., 1:] != PAD
        return (cross_entropy + doubly_stochastic_penalty(weights, real)) / real.sum()

    def captioner(self, size: Size, width: int, max_length: int) -> Captioner:
        """The whole captioner, accelerated and in evaluation mode.

        Args:
            size: of everything.
            width: of the beam search; greedy search if one.
            max_length: the most words of a caption, EOS included.
        """
        search = BeamSearch(width, max_length=max_length)
        if width == 1:
            search = Greedy(max_length=max_length)
        for part in self.parts:
            part.eval()
        vocabulary = Vocabulary([f"word{id}" for id in range(len(SPECIAL), size.vocab_size)])
        parts: Any = (*self.parts, vocabulary, Preprocessing(size.pixels), search)
        return Captioner(*parts)

    def never_end(self) -> None:
        """Make all searches write captions of the same length."""
        output = self.decoder.output
        assert isinstance(output, nn.Linear)
        never_end(output)


def search(captioner: Any, annotations: Float[Tensor, "B L D"], precision: str = "fp32") -> Any:
    """The captions of all photos by the captioner's search."""
    packed = hasattr(captioner, "prepared") and precision == "fp32"
    with captioner.prepared() if packed else nullcontext(), torch.no_grad():
        return captioner.decode(annotations)


def caption(captioner: Any, photos: Sequence[Path]) -> list[str]:
    """The captions of files."""
    return [caption.text for caption in captioner(photos)]


def random_encoder(size: Size) -> CNNEncoder:
    """An encoder with random parameters whose annotation vectors are as large as a trained one's.

    Its batch norms have seen noise; without statistics, values vanish or overflow in deep networks.
    """
    encoder = CNNEncoder(size.backbone, weights=None, grid=size.grid)
    norms = [part for part in encoder.modules() if isinstance(part, nn.BatchNorm2d)]
    for norm in norms:
        norm.train()
        norm.momentum = 1.0
    generator = torch.Generator().manual_seed(0)
    shape = (2, 3, size.pixels, size.pixels)
    with torch.no_grad():
        encoder(torch.randint(256, shape, dtype=torch.uint8, generator=generator))
    return encoder.eval()
