import pytest
import torch

from captioning.maps import head_names, word_maps
from captioning.models.attention import MultiHead
from tests.maps.conftest import TOKENS, captioned_batch


def test_attention_is_the_decoders_own(kind: str) -> None:
    batch = captioned_batch(kind)
    _, weights = batch.model.decoder(batch.annotations, TOKENS[..., :-1])
    torch.testing.assert_close(word_maps("attention", batch).flatten(3), weights)


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("lstm", ()),
        ("multi-head", ("head 1", "head 2")),
        (
            "transformer",
            tuple(f"layer {n} {name}" for n in (1, 2) for name in ("mean", "head 1", "head 2")),
        ),
    ],
)
def test_every_layer_and_head_has_a_name(kind: str, names: tuple[str, ...]) -> None:
    assert head_names(captioned_batch(kind).model.decoder) == names


@pytest.mark.parametrize(
    ("kind", "layer", "mean"),
    [
        ("multi-head", "", "attention"),
        ("transformer", "layer 1 ", "layer 1 mean"),
        ("transformer", "layer 2 ", "layer 2 mean"),
        ("transformer", "layer 2 ", "attention"),
    ],
)
def test_the_maps_of_heads_average_to_the_mean(kind: str, layer: str, mean: str) -> None:
    batch = captioned_batch(kind)
    first, second = (word_maps(f"{layer}head {head}", batch) for head in (1, 2))
    assert not torch.allclose(first, second)
    torch.testing.assert_close((first + second) / 2, word_maps(mean, batch))


@pytest.mark.parametrize(("kind", "layer"), [("multi-head", ""), ("transformer", "layer 1 ")])
def test_a_head_without_queries_is_uniform_and_the_other_is_not(kind: str, layer: str) -> None:
    batch = captioned_batch(kind)
    decoder = batch.model.decoder
    attention = (
        decoder.get_submodule("layers.0.cross_attention")
        if layer
        else decoder.get_submodule("attention.multi_head")
    )
    assert isinstance(attention, MultiHead)
    first_head = attention.query.out_features // 2
    for parameter in attention.query.parameters():
        parameter.data[:first_head] = 0
    uniform, peaked = (word_maps(f"{layer}head {head}", batch) for head in (1, 2))
    torch.testing.assert_close(uniform, torch.full_like(uniform, 1 / 16))
    assert peaked.amax(dim=(3, 4)).min() > 1.01 / 16
