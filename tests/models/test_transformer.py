"""The transformer's own: its parts in PyTorch's layers, positions, maps and refusals."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from captioning.configurable import build
from captioning.data.vocabulary import BOS, PAD
from captioning.errors import InputError
from captioning.models import LSTMDecoder, MultiHeadAttention, TransformerDecoder
from captioning.models.region_encoder import RegionEncoder
from tests.conftest import decided

TOKENS = torch.tensor([[[BOS, 4, 5, 6], [BOS, 7, 7, 5]]] * 3)  # (B, N, T) = (3, 2, 4)


def made(**options: Any) -> TransformerDecoder:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"width": 6, "layers": 3, "heads": 2, "inner_width": 7}
    return decided(TransformerDecoder(5, 8, **(sizes | options)))


def test_heads_and_layers_have_maps_of_their_own_and_a_mean(annotations: Tensor) -> None:
    parameters = made().state_dict()

    def weights(**chosen: int) -> Tensor:
        decoder = made(**chosen)
        decoder.load_state_dict(parameters)
        return decoder(annotations, TOKENS)[1]

    heads = [[weights(map_layer=layer, map_head=head) for head in (1, 2)] for layer in (1, 2, 3)]
    for layer, (first, second) in enumerate(heads, start=1):
        assert not first.allclose(second)
        torch.testing.assert_close(weights(map_layer=layer), (first + second) / 2)
    assert weights().equal(weights(map_layer=3))
    assert weights(map_head=2).equal(heads[2][1])


def test_a_map_is_chosen_by_its_name(annotations: Tensor) -> None:
    decoder = made()
    assert decoder.reported_map == "layer 3 mean"
    parameters = decoder.state_dict()
    found = []
    for head in decoder.map_names:
        decoder.report_map(head)
        assert decoder.reported_map == head
        found.append(decoder(annotations, TOKENS)[1])
        _, layer, name = head.split(" ", 2)
        number = None if name == "mean" else int(name.removeprefix("head "))
        same = made(map_layer=int(layer), map_head=number)
        same.load_state_dict(parameters)
        assert found[-1].equal(same(annotations, TOKENS)[1])
    assert len(found) == 3 * (1 + 2)
    with pytest.raises(InputError, match="no head 'layer 4 mean'; choose from layer 1 mean, "):
        decoder.report_map("layer 4 mean")


def test_the_lstm_reports_the_heads_of_its_attention(annotations: Tensor) -> None:
    options: dict[str, Any] = {"attention_options": {"heads": 2, "map_head": 2}}
    decoder = LSTMDecoder(5, 8, 6, 7, 4, MultiHeadAttention, **options).double().eval()
    assert decoder.map_names == ("mean", "head 1", "head 2")
    assert decoder.reported_map == "head 2"
    found = {}
    for head in decoder.map_names:
        decoder.report_map(head)
        found[head] = decoder(annotations, TOKENS)[1]
    torch.testing.assert_close(found["mean"], (found["head 1"] + found["head 2"]) / 2)
    alone = LSTMDecoder(5, 8, 6, 7, 4)
    assert alone.map_names == ()
    with pytest.raises(InputError, match="this model has one map of attention alone"):
        alone.report_map("head 1")


def test_which_map_is_reported_changes_no_word(annotations: Tensor) -> None:
    first, second = (made(map_layer=layer)(annotations, TOKENS)[0] for layer in (1, 3))
    torch.testing.assert_close(first, second)


@pytest.mark.parametrize("chosen", [{"map_layer": 4}, {"map_head": 3}, {"heads": 4}])
def test_layers_and_heads_that_there_are_not_are_refused(chosen: dict[str, int]) -> None:
    [name] = chosen
    with pytest.raises(InputError, match=name):
        made(**chosen)


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
    decoder = made(dropout=0.5, annotation_dropout=0.5)
    first, second = (decoder.train()(annotations, TOKENS)[0] for _ in range(2))
    assert not first.equal(second)
    first, second = (decoder.eval()(annotations, TOKENS)[0] for _ in range(2))
    assert first.equal(second)


def test_every_region_has_a_place_and_looks_at_all_others(annotations: Tensor) -> None:
    torch.manual_seed(0)
    ours = RegionEncoder(6, 2, 2, 7, grid_columns=3).double().eval()
    vectors = torch.cat([annotations, annotations[..., :1]], dim=2)
    alone = ours(torch.zeros(1, 6, 6, dtype=torch.double))
    assert torch.cdist(alone[0], alone[0]).fill_diagonal_(1.0).min() > 1e-3  # places differ
    for region in range(6):  # every region looks at all others
        other = vectors.clone()
        other[:, region, 0] += 1.0
        assert ((ours(vectors) - ours(other)).abs().amax(dim=(0, 2)) > 1e-9).all()


def test_a_region_encoder_wants_to_know_a_grid_that_is_not_square(annotations: Tensor) -> None:
    decoder = made(region_layers=1)
    with pytest.raises(InputError, match="6 regions are no square grid; give grid_columns"):
        decoder.remember(annotations)


def test_an_attention_gets_its_options(annotations: Tensor) -> None:
    decoder = LSTMDecoder(
        *(5, 8, 6, 7, 4, MultiHeadAttention), attention_options={"heads": 4, "map_head": 2}
    )
    again = build(decoder.config)
    assert again.attention.multi_head.heads == 4
    assert again.attention.map_head == 2


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"haeds": 2}, "attention_options: MultiHeadAttention: .*haeds"),
        ({"heads": 0}, "heads: give a whole number from 1 to 256, not 0"),
        ({"heads": 3}, "a width of 4 cannot be divided among 3 heads"),
        ({"heads": 2, "map_head": 3}, "map_head: there are 2; give a number from 1 to 2"),
        ({"query_dim": 2}, "attention_options: MultiHeadAttention: multiple values"),
    ],
)
def test_options_that_an_attention_does_not_take_are_refused(
    options: dict[str, Any], told: str
) -> None:
    with pytest.raises(InputError, match=told):
        LSTMDecoder(5, 8, 6, 7, 4, MultiHeadAttention, attention_options=options)


def test_autocast_gives_nearly_the_same_words(annotations: Tensor) -> None:
    decoder = made(region_layers=1, grid_columns=3).float()
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
