import pytest
import torch
from torch import Tensor, nn

from captioning.data.vocabulary import PAD
from captioning.models import TextEncoder

SENTENCES = torch.tensor([[4, 5, 6, 7], [8, 4, PAD, PAD], [5, PAD, PAD, PAD]])


@pytest.fixture
def encoder() -> TextEncoder:
    torch.manual_seed(0)
    return TextEncoder(9, 3, 4).double().eval()


def test_an_annotation_is_forward_beside_backward_state(encoder: TextEncoder) -> None:
    annotations, mask = encoder(SENTENCES)
    assert annotations.shape == (3, 4, encoder.annotation_dim) == (3, 4, 8)
    assert mask.sum(dim=1).tolist() == [4, 2, 1]
    for sentence, found, real in zip(SENTENCES, annotations, mask, strict=True):
        words = encoder.embedding(sentence[real])
        forward = read(encoder, words, "l0")
        backward = read(encoder, words.flip(0), "l0_reverse").flip(0)
        torch.testing.assert_close(found[real], torch.cat([forward, backward], dim=1))
        assert (found[~real] == 0).all()


def read(encoder: TextEncoder, words: Tensor, direction: str) -> Tensor:
    """The states of one direction, by torch's cell, word by word."""
    cell = nn.GRUCell(3, 4).double()
    cell.load_state_dict(
        {name: getattr(encoder.rnn, f"{name}_{direction}") for name in cell.state_dict()}
    )
    state: Tensor | None = None
    states = []
    for word in words:
        state = cell(word[None], state)
        states.append(state)
    return torch.cat(states)


def test_gradients_reach_every_parameter_of_the_encoder(encoder: TextEncoder) -> None:
    encoder(SENTENCES)[0].square().sum().backward()
    for name, parameter in encoder.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 1e-12, name
