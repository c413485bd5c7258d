import pytest
import torch
from torch import Tensor, nn

from captioning.models import LSTMDecoder
from tests.fixtures import LSTM, decided
from tests.models.test_decoders import MASK, TOKENS, every_mask


@pytest.mark.parametrize("query_with_word", [False, True])
def test_the_last_word_moves_attention_only_in_the_query(
    annotations: Tensor, query_with_word: bool
) -> None:
    decoder = decided(LSTM(5, 8, query_with_word=query_with_word))
    memory = decoder.remember(annotations)
    state = decoder.start(memory, 1)
    first, second = (
        decoder.step(torch.full((3, 1), word), state, memory).weights for word in (4, 5)
    )
    assert first.equal(second) is not query_with_word


def after_one_word(
    lstm: LSTMDecoder, annotations: Tensor
) -> tuple[dict[str, Tensor], Tensor, Tensor]:
    """A state that is no longer the initial one, and then logits and state of the next word."""
    memory = lstm.remember(annotations)
    state = lstm.step(TOKENS[:, :, 0], lstm.start(memory, 2), memory).state
    step = lstm.step(TOKENS[:, :, 1], state, memory)
    following = step.state
    return state, step.logits, torch.stack([following["hidden"], following["cell"]])


def test_a_step_is_torchs_lstm_cell_and_equation_7(lstm: LSTMDecoder, annotations: Tensor) -> None:
    cell = nn.LSTMCell(6 + 5, 7).double()
    cell.weight_ih.data = torch.cat([lstm.word_gates.weight, lstm.context_gates.weight], 1)
    cell.weight_hh.data = lstm.hidden_gates.weight
    cell.bias_ih.data = lstm.word_gates.bias
    cell.bias_hh.data.zero_()
    state, logits, following = after_one_word(lstm, annotations)
    hidden = state["hidden"]
    context, _ = lstm.attention(hidden, lstm.attention.project(annotations), annotations)
    beta = torch.sigmoid(hidden @ lstm.beta.weight[0] + lstm.beta.bias[0])
    context = beta[:, :, None] * context  # section 4.2.1: one number per word
    words = lstm.embedding(TOKENS[:, :, 1])
    expected = cell(
        torch.cat([words, context], dim=-1).flatten(0, 1),
        (hidden.flatten(0, 1), state["cell"].flatten(0, 1)),
    )
    torch.testing.assert_close(following.flatten(1, 2), torch.stack(expected))
    deep = (
        words + following[0] @ lstm.output_hidden.weight.T + context @ lstm.output_context.weight.T
    )
    torch.testing.assert_close(logits, deep @ lstm.output.weight.T + lstm.output.bias)


def test_without_deep_output_the_hidden_state_scores_words(annotations: Tensor) -> None:
    decoder = decided(LSTM(5, 8, deep_output=False))
    _, logits, following = after_one_word(decoder, annotations)
    expected = decoder.output(following[0] @ decoder.output_hidden.weight.T)
    torch.testing.assert_close(logits, expected)


@pytest.mark.parametrize("option", ["scalar_gate", "deep_output"])
def test_an_ablated_decoder_has_no_parameter_without_a_gradient(
    option: str, annotations: Tensor
) -> None:
    decoder = decided(LSTM(5, 8, **{option: False}))
    whole = {name for name, _ in LSTM(5, 8).named_parameters()}
    assert {name for name, _ in decoder.named_parameters()} < whole
    decoder(annotations, TOKENS)[0].logsumexp(-1).sum().backward()
    for name, parameter in decoder.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 1e-12, name


@every_mask
def test_the_first_state_comes_from_the_mean_annotation(
    lstm: LSTMDecoder, annotations: Tensor, mask: Tensor | None
) -> None:
    seen = torch.ones_like(MASK) if mask is None else mask
    mean = torch.stack([annotations[b, seen[b]].mean(0) for b in range(3)])
    state = lstm.start(lstm.remember(annotations, mask), n=2)
    for name, layer in (("hidden", lstm.initial_hidden), ("cell", lstm.initial_cell)):
        for n in range(2):
            torch.testing.assert_close(state[name][:, n], torch.tanh(layer(mean)))
