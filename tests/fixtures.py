"""Tiny models and drawn scenes: what tests share that imports PyTorch."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
import torch
from torch import Tensor, nn

from captioning.captioner import Captioner
from captioning.data.preprocessing import Preprocessing
from captioning.data.readers import Coco
from captioning.data.records import Record
from captioning.data.vocabulary import Vocabulary
from captioning.models import (
    Adapter,
    AdditiveAttention,
    CNNEncoder,
    Decoder,
    DotProductAttention,
    Encoder,
    HardAttention,
    LSTMDecoder,
    Model,
    MultiHeadAttention,
    TransformerDecoder,
)
from captioning.shapes import write_shapes
from tests.conftest import MadeOnce

torch.set_num_threads(1)  # tensors are tiny here; more threads wait for each other on busy cores

AnyModule = TypeVar("AnyModule", bound=nn.Module)

ATTENTIONS: dict[str, Any] = {
    "additive": AdditiveAttention,
    "dot product": DotProductAttention,
    "hard": HardAttention,
}

LSTM = partial(LSTMDecoder, embedding_dim=6, hidden_dim=7, attention_dim=4)

TRANSFORMER = partial(TransformerDecoder, width=6, layers=2, heads=2, inner_width=7)

DECODERS: dict[str, Callable[[int, int], Decoder]] = {
    "additive": LSTM,
    "dot product": partial(LSTM, attention=DotProductAttention),
    "hard": partial(LSTM, attention=HardAttention),
    "multi-head": partial(LSTM, attention=partial(MultiHeadAttention, heads=2)),
    "transformer": TRANSFORMER,
}
"""Every decoder, from the width of annotation vectors and the size of the vocabulary."""


@pytest.fixture
def two_threads() -> Iterator[None]:
    """PyTorch computes in two threads, as on a machine of two cores."""
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def shapes_data(made_once: MadeOnce) -> Path:
    """A few drawn scenes in COCO's layout; not to be changed by a test."""

    def draw(folder: Path) -> None:
        write_shapes(folder / "shapes", train=6, val=4, test=2, pixels=48, progress=False)

    return made_once("data", draw) / "shapes"


@pytest.fixture(scope="session")
def shapes_records(shapes_data: Path) -> list[Record]:
    """The six scenes to train on."""
    return Coco(shapes_data).read().records("train")


@pytest.fixture
def vocabulary() -> Vocabulary:
    """Four words, so V is 8."""
    return Vocabulary(["a", "red", "circle", "square"])


class Vectors(Encoder):
    """Takes annotation vectors as they are, for images."""

    def __init__(self, annotation_dim: int = 5) -> None:
        super().__init__()
        self.annotation_dim = annotation_dim

    def forward(self, images: Tensor) -> Tensor:
        return images

    def grid(self, height: int, width: int) -> tuple[int, int]:
        return height, width


class Patches(Encoder):
    """The mean colours of 8 x 8 pixels, projected: an encoder that is no CNN."""

    annotation_dim = 5

    def __init__(self, trained: bool = True) -> None:
        super().__init__()
        self.projection = nn.Sequential(nn.Linear(3, 5), nn.Dropout(0.5)).requires_grad_(trained)

    def forward(self, images: Tensor) -> Tensor:
        pixels = images.to(next(self.parameters()).dtype) / 255
        return self.projection(nn.functional.avg_pool2d(pixels, 8).flatten(2).transpose(1, 2))

    def grid(self, height: int, width: int) -> tuple[int, int]:
        return height // 8, width // 8


def decided(made: AnyModule) -> AnyModule:
    """The module with large random parameters, for confident predictions, in double precision."""
    for parameter in made.parameters():
        nn.init.normal_(parameter, std=0.7)
    return made.double().eval()


@pytest.fixture(params=DECODERS)
def decoder(request: pytest.FixtureRequest) -> Decoder:
    """A tiny decoder of every kind, with confident predictions, in double precision."""
    torch.manual_seed(1)
    return decided(DECODERS[request.param](5, 8))


@pytest.fixture(params=ATTENTIONS)
def lstm(request: pytest.FixtureRequest) -> LSTMDecoder:
    """The paper's decoder of either attention, in the same way."""
    torch.manual_seed(1)
    return decided(LSTM(5, 8, attention=ATTENTIONS[request.param]))


@pytest.fixture
def annotations() -> Tensor:
    """Three images of six regions, in double precision: (3, 6, 5)."""
    return torch.randn(3, 6, 5, dtype=torch.double, generator=torch.Generator().manual_seed(2))


@pytest.fixture
def captioner(vocabulary: Vocabulary) -> Captioner:
    """See `tiny_captioner`."""
    return tiny_captioner(vocabulary)


def tiny_captioner(
    vocabulary: Vocabulary, seed: int = 3, side: int = 32, hidden_dim: int = 16
) -> Captioner:
    """A whole tiny model with random parameters, for photos of so many pixels a side."""
    torch.manual_seed(seed)
    encoder = CNNEncoder("small", weights=None)
    decoder = decided(LSTMDecoder(encoder.annotation_dim, len(vocabulary), 16, hidden_dim, 16))
    model = Model(encoder, Adapter(encoder.annotation_dim), decoder.float()).eval()
    return Captioner(model, vocabulary, Preprocessing(side))


def checkpoint_of(captioner: Captioner, path: Path, /, **changes: Any) -> Path:
    """A file as `captioning train` writes it, as far as captioning needs it."""
    state = {f"model.{name}": value for name, value in captioner.model.state_dict().items()}
    torch.save({"captioner": captioner.config, "state_dict": state} | changes, path)
    return path
