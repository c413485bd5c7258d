"""The transformer decoder, beyond the interface of every decoder."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from captioning.configurable import build
from captioning.data.vocabulary import BOS, PAD
from captioning.errors import InputError
from captioning.models import LSTMDecoder, MultiHeadAttention, TransformerDecoder
from tests.conftest import decided

TOKENS = torch.tensor([[[BOS, 4, 5, 6], [BOS, 7, 7, 5]]] * 3)  # (B, N, T) = (3, 2, 4)


def made(**options: Any) -> TransformerDecoder:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"width": 6, "layers": 3, "heads": 2, "inner_width": 7}
    return decided(TransformerDecoder(5, 8, **(sizes | options)))


def test_the_weights_are_the_mean_over_the_heads_of_the_last_layer(annotations: Tensor) -> None:
    decoder = made()
    found: list[Tensor] = []
    for layer in decoder.layers:
        layer.register_forward_hook(lambda *called: found.append(called[2].weights))
    weights = decoder(annotations, TOKENS)[1]
    assert found[:2] == [None, None]
    torch.testing.assert_close(weights, found[2].mean(dim=1))


def test_a_width_that_the_heads_do_not_divide_is_refused() -> None:
    with pytest.raises(InputError, match="a width of 6 cannot be divided among 4 heads"):
        made(heads=4)


def test_the_order_of_the_words_matters(annotations: Tensor) -> None:
    other = TOKENS[..., [0, 2, 1, 3]]
    first, second = (made(layers=1)(annotations, t)[0][:, :, 3] for t in (TOKENS, other))
    assert (first - second).abs().max() > 1e-3


def test_tied_embeddings_are_one_matrix_and_padding_is_zero() -> None:
    torch.manual_seed(0)
    decoder = TransformerDecoder(5, 8, 6, 1, 2, 7)
    assert decoder.output.weight is decoder.embedding.weight
    assert (decoder.embedding.weight[PAD] == 0).all()
    apart = TransformerDecoder(5, 8, 6, 1, 2, 7, tie_embeddings=False)
    assert apart.output.weight is not apart.embedding.weight


def test_first_logits_of_a_new_decoder_are_small() -> None:
    torch.manual_seed(0)
    decoder = TransformerDecoder(5, 1000, 64, 2, 4, 128).eval()
    logits, weights = decoder(100 * torch.randn(2, 9, 5), torch.full((2, 1, 3), 7))
    assert logits.std() < 2  # though each word is scored by its own embedding, too
    assert weights.max() < 0.9  # though the annotation vectors are large


def test_dropout_acts_in_training_only(annotations: Tensor) -> None:
    decoder = made(dropout=0.5)
    first, second = (decoder.train()(annotations, TOKENS)[0] for _ in range(2))
    assert not first.equal(second)
    first, second = (decoder.eval()(annotations, TOKENS)[0] for _ in range(2))
    assert first.equal(second)


def test_the_config_keeps_the_arguments_of_an_attention() -> None:
    decoder = LSTMDecoder(5, 8, 6, 7, 4, partial(MultiHeadAttention, heads=4))
    assert build(decoder.config, LSTMDecoder).attention.multi_head.heads == 4


def test_arguments_that_make_no_attention_are_refused() -> None:
    with pytest.raises(InputError, match="a width of 4 cannot be divided among 3 heads"):
        LSTMDecoder(5, 8, 6, 7, 4, partial(MultiHeadAttention, heads=3))


def test_autocast_gives_nearly_the_same_words(annotations: Tensor) -> None:
    decoder = made().float()
    for parameter in decoder.parameters():
        nn.init.normal_(parameter, std=0.2, generator=torch.Generator().manual_seed(1))
    expected, weights = decoder(annotations.float(), TOKENS)
    with torch.autocast("cpu", torch.bfloat16):
        memory = decoder.remember(annotations.float())
        found, found_weights = decoder.teacher_forcing(memory, TOKENS)
        state = decoder.start(memory, 2)
        for t in range(4):
            step = decoder.step(TOKENS[:, :, t], state, memory)
            state = step.state
    torch.testing.assert_close(found.float(), expected, rtol=0, atol=0.2)
    torch.testing.assert_close(step.logits.float(), expected[:, :, 3], rtol=0, atol=0.2)
    assert found_weights.dtype == torch.float32
    torch.testing.assert_close(found_weights, weights, rtol=0, atol=0.05)
