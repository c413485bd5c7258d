"""This package's side of each task, and the only file that knows the package's API.

Runs with the package of this checkout and with that of version 0.3.

Shapes: B photos, N captions per photo, L regions, D annotation width, S tokens from BOS to EOS.
"""

from collections.abc import Sequence
from contextlib import suppress
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
from captioning.models import Adapter, CNNEncoder, LSTMDecoder, Model
from captioning.models.losses import doubly_stochastic_penalty
from captioning.search import BeamSearch, Greedy

kernels: Any = import_module("captioning.kernels")


def keep_freed_memory() -> None:
    """Let the allocator keep memory, as commands do."""
    for name in ("captioning.commands", "captioning.cli.program"):
        with suppress(ImportError, AttributeError):
            import_module(name).keep_freed_memory()


class Ours:
    """The paper's model with random parameters, accelerated.

    Args:
        size: of everything.
        dropout: of word embeddings, of the deep output, and of projected annotation vectors.
    """

    def __init__(self, size: Size, dropout: float = 0.5) -> None:
        torch.manual_seed(0)
        hidden = size.hidden_dim
        self.model = Model(
            random_encoder(size),
            Adapter(
                size.annotation_dim, size.projection_dim, dropout if size.projection_dim else 0.0
            ),
            LSTMDecoder(size.width, size.vocab_size, hidden, hidden, hidden, dropout=dropout),
        )
        self.fast = self.model
        self.trained = nn.ModuleList([self.model.adapter, self.model.decoder])
        keep_freed_memory()

    def to(self, device: torch.device, dtype: torch.dtype = torch.float32) -> "Ours":
        """Move all parameters."""
        self.model.to(device, dtype)
        return self

    def prepare_training(self) -> None:
        """Swap in the kernels of a training, and let them compile."""
        self.fast = kernels.accelerate(self.model.train())
        import_module("captioning.kernels.compiled").compile_from_now()

    def loss(
        self, annotations: Float[Tensor, "B L D"], tokens: Int[Tensor, "B N S"]
    ) -> Float[Tensor, ""]:
        """What a training minimises, without label smoothing."""
        decoder: Any = self.fast.decoder
        memory = self.fast.remember(annotations)
        if hasattr(kernels, "caption_cross_entropy"):
            cross_entropy, weights = kernels.caption_cross_entropy(decoder, memory, tokens)
        else:
            cross_entropy, weights = decoder.cross_entropy(memory, tokens)
        real = tokens[..., 1:] != PAD
        return (cross_entropy + doubly_stochastic_penalty(weights, real)) / real.sum()

    def captioner(self, size: Size, width: int, max_length: int) -> Captioner:
        """The whole captioner, frozen as a loaded one.

        Args:
            size: of everything.
            width: of the beam search; greedy search if one.
            max_length: the most words of a caption, EOS included.
        """
        search: Any = BeamSearch(width, max_length=max_length)
        if width == 1:
            search = Greedy(max_length=max_length)
        vocabulary = Vocabulary([f"word{id}" for id in range(len(SPECIAL), size.vocab_size)])
        parts: Any = (self.model, vocabulary, Preprocessing(size.pixels), search)
        return Captioner(*parts).freeze()

    def never_end(self) -> None:
        """Make all searches write captions of the same length."""
        output = self.model.decoder.output
        assert isinstance(output, nn.Linear)
        never_end(output)


@torch.no_grad()
def search(captioner: Any, annotations: Float[Tensor, "B L D"]) -> Any:
    """The captions of all photos by the captioner's search."""
    return captioner.find_captions(annotations)


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
