"""The interface of a decoder, tested with every kind."""

from typing import Any

import pytest
import torch
from torch import Tensor

from captioning.configurable import build
from captioning.data.vocabulary import BOS, EOS, PAD
from captioning.models import Decoder, DotProductAttention, LSTMDecoder
from tests.fixtures import DECODERS

MASK = torch.tensor([[True] * 4 + [False] * 2, [True] * 6, [True] + [False] * 5])
TOKENS = torch.tensor([[[BOS, 4, 5, 6], [BOS, 7, 7, EOS]]] * 3)  # (B, N, T) = (3, 2, 4)
every_mask = pytest.mark.parametrize("mask", [None, MASK], ids=["all regions", "masked"])


@every_mask
def test_forward_equals_steps(decoder: Decoder, annotations: Tensor, mask: Tensor | None) -> None:
    logits, weights = decoder(annotations, TOKENS, mask)
    stepped = Decoder.teacher_forcing(decoder, decoder.remember(annotations, mask), TOKENS)
    assert logits.shape == (3, 2, 4, 8)
    torch.testing.assert_close(logits, stepped[0], rtol=0, atol=1e-10)
    torch.testing.assert_close(weights, stepped[1], rtol=0, atol=1e-10)


@every_mask
def test_weights_sum_to_one_over_the_regions_that_may_be_seen(
    decoder: Decoder, annotations: Tensor, mask: Tensor | None
) -> None:
    _, weights = decoder(annotations, TOKENS, mask)
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(3, 2, 4, dtype=torch.double))
    if mask is not None:
        assert (weights.permute(0, 3, 1, 2)[~mask] == 0).all()


def test_regions_behind_the_mask_change_nothing(decoder: Decoder, annotations: Tensor) -> None:
    other = annotations.where(MASK[:, :, None], 1e3)
    for first, second in zip(
        decoder(annotations, TOKENS, MASK), decoder(other, TOKENS, MASK), strict=True
    ):
        torch.testing.assert_close(first, second)


@every_mask
def test_a_batch_equals_its_captions_one_by_one(
    decoder: Decoder, annotations: Tensor, mask: Tensor | None
) -> None:
    together, _ = decoder(annotations, TOKENS, mask)
    for b in range(3):
        own = None if mask is None else mask[b : b + 1]
        for n in range(2):
            alone, _ = decoder(annotations[b : b + 1], TOKENS[b : b + 1, n : n + 1], own)
            torch.testing.assert_close(together[b : b + 1, n : n + 1], alone)


def test_a_word_has_no_influence_on_the_words_before_it(
    decoder: Decoder, annotations: Tensor
) -> None:
    other = TOKENS.clone()
    other[:, :, 2] = 7
    first, second = decoder(annotations, TOKENS)[0], decoder(annotations, other)[0]
    torch.testing.assert_close(first[:, :, :2], second[:, :, :2])
    assert (first[:, :, 2] - second[:, :, 2]).abs().max() > 1e-6


def test_a_state_can_be_continued_twice(decoder: Decoder, annotations: Tensor) -> None:
    memory = decoder.remember(annotations)
    state = decoder.step(TOKENS[:, :, 0], decoder.start(memory, 2), memory).state
    first = decoder.step(TOKENS[:, :, 1], state, memory).logits
    decoder.step(torch.full((3, 2), 6), state, memory)
    assert decoder.step(TOKENS[:, :, 1], state, memory).logits.equal(first)


def test_its_config_builds_the_same_decoder(decoder: Decoder, annotations: Tensor) -> None:
    again = build(decoder.config, Decoder).double().eval()
    again.load_state_dict(decoder.state_dict())
    assert again(annotations, TOKENS)[0].equal(decoder(annotations, TOKENS)[0])


@pytest.mark.parametrize("kind", ["additive", "transformer"])
def test_tied_embeddings_are_one_matrix_and_padding_is_zero(kind: str) -> None:
    for tied in (False, True):
        make: Any = DECODERS[kind]
        decoder = make(5, 8, tie_embeddings=tied)
        assert (decoder.output.weight is decoder.embedding.weight) == tied
        assert (decoder.embedding.weight[PAD] == 0).all()


def test_gradients_reach_every_parameter(decoder: Decoder, annotations: Tensor) -> None:
    decoder(annotations, TOKENS)[0].logsumexp(-1).sum().backward()
    # A key's bias moves all scores of a dot product alike, which softmax does not notice.
    of_dot_products = {"self_attention", "cross_attention", "multi_head"}
    if isinstance(decoder, LSTMDecoder) and isinstance(decoder.attention, DotProductAttention):
        of_dot_products.add("attention")
    for name, parameter in decoder.named_parameters():
        owner, _, rest = name.rpartition(".key.")
        silent = rest == "bias" and owner.rpartition(".")[2] in of_dot_products
        moved = parameter.grad is not None and bool(parameter.grad.abs().max() > 1e-12)
        assert moved == (not silent), name


def test_dropout_acts_in_training_only(decoder: Decoder, annotations: Tensor) -> None:
    for part in decoder.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.5
    first, second = (decoder.train()(annotations, TOKENS)[0] for _ in range(2))
    assert not first.equal(second)
    first, second = (decoder.eval()(annotations, TOKENS)[0] for _ in range(2))
    assert first.equal(second)
