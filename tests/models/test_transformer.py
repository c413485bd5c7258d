"""The transformer decoder, beyond the interface of every decoder."""

from typing import Any

import torch
from torch import Tensor

from captioning.data.vocabulary import BOS, PAD
from captioning.models import TransformerDecoder
from tests.conftest import decided

TOKENS = torch.tensor([[[BOS, 4, 5, 6], [BOS, 7, 7, 5]]] * 3)  # (B, N, T) = (3, 2, 4)


def made(**options: Any) -> TransformerDecoder:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"width": 6, "layers": 3, "heads": 2, "inner_width": 7}
    return decided(TransformerDecoder(5, 8, **(sizes | options)))


def test_the_weights_are_the_mean_of_the_last_layer_s_heads(annotations: Tensor) -> None:
    decoder = made()
    found: list[Tensor] = []
    for layer in decoder.layers:
        layer.register_forward_hook(lambda *called: found.append(called[2][2]))
    weights = decoder(annotations, TOKENS)[1]
    assert found[:2] == [None, None]
    torch.testing.assert_close(weights, found[2].mean(dim=1))


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
