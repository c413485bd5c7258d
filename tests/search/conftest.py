import pytest
import torch

from captioning.models import Decoder
from tests.fixtures import DECODERS, decided


@pytest.fixture(params=["additive", "transformer"])
def decoder(request: pytest.FixtureRequest) -> Decoder:
    """Searches know only the interface that all decoders share, so two kinds suffice."""
    torch.manual_seed(4)
    return decided(DECODERS[request.param](5, 8))
