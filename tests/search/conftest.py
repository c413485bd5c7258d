import pytest
import torch

from captioning.models import Decoder, LSTMDecoder, TransformerDecoder


@pytest.fixture(params=["LSTM", "transformer"])
def decoder(request: pytest.FixtureRequest) -> Decoder:
    """A tiny decoder with confident predictions, in double precision.

    Searches know only the interface that all decoders share, so two kinds suffice.
    """
    torch.manual_seed(1)
    made: Decoder = LSTMDecoder(5, 8, 6, 7, 4)
    if request.param == "transformer":
        made = TransformerDecoder(5, 8, width=6, layers=2, heads=2, inner_width=7)
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    return made.double().eval()
