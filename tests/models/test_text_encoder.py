import pytest
import torch
from torch import Tensor, nn

from captioning.data.vocabulary import BOS, EOS, PAD
from captioning.kernels.fast_lstm import FastLSTM
from captioning.models import LSTMDecoder, TextEncoder
from captioning.models.losses import cross_entropy
from captioning.search import BeamSearch, Greedy, Search
from tests.conftest import decided

SENTENCES = torch.tensor([[4, 5, 6, 7], [8, 4, PAD, PAD], [5, PAD, PAD, PAD]])
TARGETS = torch.tensor([[[BOS, 4, 5, EOS]], [[BOS, 6, EOS, PAD]], [[BOS, 7, 7, EOS]]])


@pytest.fixture
def encoder() -> TextEncoder:
    torch.manual_seed(0)
    return TextEncoder(9, 3, 4).double().eval()


@pytest.fixture
def decoder() -> LSTMDecoder:
    """For annotation vectors of width 8."""
    torch.manual_seed(1)
    return decided(LSTMDecoder(8, 8, 6, 7, 4))


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


@pytest.mark.parametrize(
    "search", [Greedy(max_length=6), BeamSearch(3, max_length=6)], ids=["greedy", "beam"]
)
def test_a_translated_batch_equals_its_sentences_one_by_one(
    encoder: TextEncoder, decoder: LSTMDecoder, search: Search
) -> None:
    together = search(decoder, decoder.remember(*encoder(SENTENCES)))
    for b, sentence in enumerate(SENTENCES):
        real = sentence != PAD
        alone = search(decoder, decoder.remember(*encoder(sentence[real][None])))
        length = alone.tokens.shape[2]
        assert together.tokens[b, :, :length].equal(alone.tokens[0])
        torch.testing.assert_close(together.scores[b], alone.scores[0])
        torch.testing.assert_close(together.weights[b, :, :length, : real.sum()], alone.weights[0])
        assert (together.weights[b, ..., real.sum() :] == 0).all()


def test_the_loss_reaches_every_parameter_of_the_encoder(
    encoder: TextEncoder, decoder: LSTMDecoder
) -> None:
    gradients = []
    for reader in (decoder, FastLSTM(decoder)):
        encoder.zero_grad()
        logits, _ = reader.teacher_forcing(reader.remember(*encoder(SENTENCES)), TARGETS[..., :-1])
        loss = cross_entropy(logits, TARGETS[..., 1:])
        loss.backward()
        gradients.append([loss, *(parameter.grad for parameter in encoder.parameters())])
    for plain, fast in zip(*gradients, strict=True):
        assert plain.abs().max() > 1e-12
        torch.testing.assert_close(fast, plain, rtol=1e-10, atol=1e-10)
