from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from captioning.data.preprocessing import Preprocessing
from captioning.data.readers import Coco
from captioning.data.records import Record
from captioning.data.shapes import write_shapes
from captioning.data.vocabulary import Vocabulary
from captioning.models import (
    AdditiveAttention,
    Captioner,
    CNNEncoder,
    DotProductAttention,
    LSTMDecoder,
)

torch.set_num_threads(1)  # tensors are tiny here; more threads wait for each other on busy cores

ATTENTIONS: dict[str, Any] = {"additive": AdditiveAttention, "dot product": DotProductAttention}


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real data sets beside the checkout, where a developer's machine has them."""
    folder = Path(__file__).parents[1].parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no real data in {folder}")
    return folder


@pytest.fixture(scope="session")
def shapes_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few drawn scenes in COCO's layout; not to be changed by a test."""
    folder = tmp_path_factory.mktemp("data") / "shapes"
    write_shapes(folder, train=6, val=4, test=2, pixels=48, progress=False)
    return folder


@pytest.fixture(scope="session")
def shapes_records(shapes_data: Path) -> list[Record]:
    """The six scenes to train on."""
    return Coco(shapes_data).read("train")


@pytest.fixture
def vocabulary() -> Vocabulary:
    """Four words, so V is 8."""
    return Vocabulary(["a", "red", "circle", "square"])


@pytest.fixture(params=ATTENTIONS)
def decoder(request: pytest.FixtureRequest) -> LSTMDecoder:
    """A tiny decoder of either attention, of decided opinions, in double precision."""
    torch.manual_seed(1)
    decoder = LSTMDecoder(
        annotation_dim=5,
        vocab_size=8,
        embedding_dim=6,
        hidden_dim=7,
        attention_dim=4,
        attention=ATTENTIONS[request.param],
    )
    for parameter in decoder.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    return decoder.double().eval()


@pytest.fixture
def annotations() -> Tensor:
    """Three images of six regions, in double precision: (3, 6, 5)."""
    return torch.randn(3, 6, 5, dtype=torch.double, generator=torch.Generator().manual_seed(2))


@pytest.fixture
def captioner(vocabulary: Vocabulary) -> Captioner:
    """A whole tiny model with random parameters, for images of 32 x 32 pixels."""
    torch.manual_seed(3)
    encoder = CNNEncoder("small", weights=None)
    decoder = LSTMDecoder(encoder.annotation_dim, len(vocabulary), 16, 16, 16)
    for parameter in decoder.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    return Captioner(encoder, decoder, vocabulary, Preprocessing(32)).eval()
