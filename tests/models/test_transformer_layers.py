"""The transformer's layers against PyTorch's, with the same parameters."""

import math

import pytest
import torch
from torch import Tensor, nn

from captioning.models.transformer_layers import DecoderLayer, EncoderLayer, sinusoids
from tests.models.test_multi_head import CAUSAL, as_ours, exact, numbers

B, T, L, WIDTH, HEADS, INNER = 3, 4, 5, 6, 2, 7
WORDS = torch.tensor([[True] * 4, [True, True, False, False], [True] + [False] * 3])
REGIONS = torch.tensor([[True, False, True, True, False], [True] * 5, [False] * 4 + [True]])
WORD_MASKS: dict[str, Tensor | None] = {
    "all words": None,
    "causal": CAUSAL,
    "causal and padding": CAUSAL & WORDS[:, None],
}
REGION_MASKS: dict[str, Tensor | None] = {"all regions": None, "regions": REGIONS[:, None]}
every_word_mask = pytest.mark.parametrize("mask", WORD_MASKS.values(), ids=WORD_MASKS)

NAMES = {
    "self_attn": "self_attention",
    "multihead_attn": "cross_attention",
    "linear1": "feed_forward.inner",
    "linear2": "feed_forward.outer",
}


def by_our_names(theirs: nn.Module, values: dict[str, Tensor], norms: list[str]) -> dict:
    """The parameters of PyTorch's layer, or their gradients, by our names."""
    found = {}
    for name, part in theirs.named_children():
        own = {key[len(name) + 1 :]: v for key, v in values.items() if key.startswith(f"{name}.")}
        if isinstance(part, nn.MultiheadAttention):
            own = as_ours(part, own)
        elif name.startswith("norm"):
            ours = norms[int(name[4:]) - 1]
            own = {f"norm.{key}": value for key, value in own.items()}
            found |= {f"{ours}.{key}": value for key, value in own.items()}
            continue
        found |= {f"{NAMES[name]}.{key}": value for key, value in own.items()} if own else {}
    return found


def compared(
    ours: nn.Module, theirs: nn.Module, outputs: tuple[Tensor, Tensor], inputs: list[Tensor]
) -> None:
    """Equal outputs, and equal gradients by inputs and parameters."""
    norms = ["around_self", "around_cross", "around_network"]
    if isinstance(ours, EncoderLayer):
        norms = ["around_attention", "around_network"]
    exact(*outputs)
    goal = numbers(*outputs[0].shape, seed=9).detach()
    found, expected = (
        torch.autograd.grad((output * goal).sum(), [*inputs, *layer.parameters()])
        for output, layer in zip(outputs, (ours, theirs), strict=True)
    )
    for n in range(len(inputs)):
        exact(found[n], expected[n])
    names = [name for name, _ in theirs.named_parameters()]
    wanted = by_our_names(theirs, dict(zip(names, expected[len(inputs) :], strict=True)), norms)
    mine = [name for name, _ in ours.named_parameters()]
    assert set(mine) == set(wanted)
    for name, gradient in zip(mine, found[len(inputs) :], strict=True):
        exact(gradient, wanted[name])


def with_random_parameters(layer: nn.Module) -> nn.Module:
    generator = torch.Generator().manual_seed(0)
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.7, generator=generator)
    return layer.double()


@every_word_mask
def test_an_encoders_layer_is_torchs(mask: Tensor | None) -> None:
    theirs = with_random_parameters(
        nn.TransformerEncoderLayer(
            WIDTH, HEADS, INNER, dropout=0.0, batch_first=True, norm_first=True
        )
    )
    ours = EncoderLayer(WIDTH, HEADS, INNER, 0.0).double()
    norms = ["around_attention", "around_network"]
    ours.load_state_dict(by_our_names(theirs, dict(theirs.named_parameters()), norms))
    x = numbers(B, T, WIDTH)
    hidden = None if mask is None else ~mask.expand(B, T, T).repeat_interleave(HEADS, dim=0)
    compared(ours, theirs, (ours(x, mask), theirs(x, src_mask=hidden)), [x])


@pytest.mark.parametrize("regions_mask", REGION_MASKS.values(), ids=REGION_MASKS)
@pytest.mark.parametrize("with_weights", [True, False], ids=["weights", "fused"])
def test_a_decoders_layer_is_torchs(regions_mask: Tensor | None, with_weights: bool) -> None:
    theirs = with_random_parameters(
        nn.TransformerDecoderLayer(
            WIDTH, HEADS, INNER, dropout=0.0, batch_first=True, norm_first=True
        )
    )
    ours = DecoderLayer(WIDTH, HEADS, INNER, 0.0).double()
    norms = ["around_self", "around_cross", "around_network"]
    ours.load_state_dict(by_our_names(theirs, dict(theirs.named_parameters()), norms))
    words, regions = numbers(B, T, WIDTH), numbers(B, L, WIDTH, seed=1)
    projected = ours.cross_attention.project(regions)
    read, _, weights = ours(words[:, None], no_words(1), projected, regions_mask, with_weights)
    expected = theirs(
        words,
        regions,
        tgt_mask=~CAUSAL[0],
        memory_mask=None
        if regions_mask is None
        else ~regions_mask.expand(B, T, L).repeat_interleave(HEADS, 0),
    )
    compared(ours, theirs, (read[:, 0], expected), [words, regions])
    if with_weights:
        torch.testing.assert_close(
            weights.sum(dim=-1), torch.ones(B, HEADS, 1, T, dtype=torch.double)
        )


def no_words(captions: int) -> Tensor:
    return torch.zeros(B, captions, 0, 2 * WIDTH, dtype=torch.double)


def test_captions_of_an_image_share_its_keys_and_nothing_else() -> None:
    layer = with_random_parameters(DecoderLayer(WIDTH, HEADS, INNER, 0.0))
    words, regions = numbers(B, 2, T, WIDTH), numbers(B, L, WIDTH, seed=1)
    projected, mask = layer.cross_attention.project(regions), REGIONS[:, None]
    together, _, weights = layer(words, no_words(2), projected, mask, with_weights=True)
    for n in range(2):
        alone, _, own = layer(words[:, n : n + 1], no_words(1), projected, mask, with_weights=True)
        exact(together[:, n : n + 1], alone)
        exact(weights[:, :, n : n + 1], own)


def places(count: int) -> Tensor:
    return torch.arange(count, dtype=torch.double)


@pytest.mark.parametrize("width", [1, 6, 7])
def test_positions_are_the_papers_formula(width: int) -> None:
    found = sinusoids(places(5), width)
    assert found.shape == (5, width)
    for position in range(5):
        for channel in range(width):
            wave = math.cos if channel % 2 else math.sin
            angle = position / 10000 ** (2 * (channel // 2) / width)
            assert found[position, channel].item() == pytest.approx(wave(angle), abs=1e-12)
