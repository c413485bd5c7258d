"""The transformer's layers against PyTorch's, and its decoder beyond the common interface."""

import math
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from captioning.models import TransformerDecoder
from captioning.models.transformer import DecoderLayer, EncoderLayer, sinusoids
from tests.fixtures import TRANSFORMER, decided
from tests.models.test_decoders import TOKENS
from tests.models.test_multi_head import CAUSAL, as_ours, compared, exact, numbers

B, T, L, WIDTH, HEADS, INNER = 3, 4, 5, 6, 2, 7
SIZES: dict[str, Any] = {"dropout": 0.0, "batch_first": True, "norm_first": True}
WORDS = torch.tensor([[True] * 4, [True, True, False, False], [True] + [False] * 3])
REGIONS = torch.tensor([[True, False, True, True, False], [True] * 5, [False] * 4 + [True]])

NAMES = {
    "self_attn": "self_attention",
    "multihead_attn": "cross_attention",
    "linear1": "feed_forward.inner",
    "linear2": "feed_forward.outer",
}


def by_our_names(ours: nn.Module, theirs: Any, named: dict[str, Any]) -> dict[str, Tensor]:
    """The parameters of PyTorch's layer, or their gradients, by our names."""
    norms = [name for name, _ in ours.named_children() if name.startswith("around")]
    names = NAMES | {f"norm{n}": f"{norm}.norm" for n, norm in enumerate(norms, start=1)}
    found = {}
    for name, part in theirs.named_children():
        own = {key[len(name) + 1 :]: v for key, v in named.items() if key.startswith(f"{name}.")}
        if isinstance(part, nn.MultiheadAttention):
            own = as_ours(part, own)
        found |= {f"{names[name]}.{key}": value for key, value in own.items()}
    return found


def with_parameters_of(theirs: nn.Module, ours: nn.Module) -> None:
    """Both layers get the same random parameters, in double precision."""
    generator = torch.Generator().manual_seed(0)
    for parameter in theirs.double().parameters():
        nn.init.normal_(parameter, std=0.7, generator=generator)
    ours.double().load_state_dict(by_our_names(ours, theirs, dict(theirs.named_parameters())))


@pytest.mark.parametrize(
    "mask", [None, CAUSAL, CAUSAL & WORDS[:, None]], ids=["all", "causal", "causal and padding"]
)
def test_an_encoders_layer_is_torchs(mask: Tensor | None) -> None:
    ours = EncoderLayer(WIDTH, HEADS, inner_width=INNER, dropout=0.0)
    theirs = nn.TransformerEncoderLayer(WIDTH, HEADS, INNER, **SIZES)
    with_parameters_of(theirs, ours)
    x = numbers(B, T, WIDTH)
    hidden = None if mask is None else ~mask.expand(B, T, T).repeat_interleave(HEADS, dim=0)
    compared(
        ours, theirs, (ours(x, mask), theirs(x, src_mask=hidden)), [x], partial(by_our_names, ours)
    )


def no_words(captions: int) -> Tensor:
    return torch.zeros(B, captions, 0, 2 * WIDTH, dtype=torch.double)


@pytest.mark.parametrize("mask", [None, REGIONS[:, None]], ids=["all regions", "regions"])
@pytest.mark.parametrize("with_weights", [True, False], ids=["weights", "fused"])
def test_a_decoders_layer_is_torchs(mask: Tensor | None, with_weights: bool) -> None:
    ours = DecoderLayer(WIDTH, HEADS, inner_width=INNER, dropout=0.0, annotation_dim=WIDTH)
    theirs = nn.TransformerDecoderLayer(WIDTH, HEADS, INNER, **SIZES)
    with_parameters_of(theirs, ours)
    words, regions = numbers(B, T, WIDTH), numbers(B, L, WIDTH, seed=1)
    projected = ours.cross_attention.project(regions)
    read, _, weights = ours(words[:, None], no_words(1), projected, mask, with_weights)
    hidden = None if mask is None else ~mask.expand(B, T, L).repeat_interleave(HEADS, 0)
    expected = theirs(words, regions, tgt_mask=~CAUSAL[0], memory_mask=hidden)
    compared(ours, theirs, (read[:, 0], expected), [words, regions], partial(by_our_names, ours))
    if with_weights:
        exact(weights.sum(dim=-1), torch.ones(B, HEADS, 1, T, dtype=torch.double))


@pytest.mark.parametrize("width", [1, 6, 7])
def test_positions_are_the_papers_formula(width: int) -> None:
    found = sinusoids(torch.arange(5, dtype=torch.double), width)
    assert found.shape == (5, width)
    for position in range(5):
        for channel in range(width):
            wave = math.cos if channel % 2 else math.sin
            angle = position / 10000 ** (2 * (channel // 2) / width)
            assert found[position, channel].item() == pytest.approx(wave(angle), abs=1e-12)


def test_the_weights_are_the_mean_of_the_last_layer_s_heads(annotations: Tensor) -> None:
    decoder = decided(TRANSFORMER(5, 8, layers=3))
    found: list[Tensor] = []
    for layer in decoder.layers:
        layer.register_forward_hook(lambda *called: found.append(called[2][2]))
    weights = decoder(annotations, TOKENS)[1]
    assert found[:2] == [None, None]
    torch.testing.assert_close(weights, found[2].mean(dim=1))


def test_the_order_of_the_words_matters(annotations: Tensor) -> None:
    other = TOKENS[..., [0, 2, 1, 3]]
    decoder = decided(TRANSFORMER(5, 8, layers=1))
    first, second = (decoder(annotations, tokens)[0][:, :, 3] for tokens in (TOKENS, other))
    assert (first - second).abs().max() > 1e-3


def test_first_logits_of_a_new_decoder_are_small() -> None:
    torch.manual_seed(0)
    decoder = TransformerDecoder(5, 1000, 64, 2, 4, 128).eval()
    logits, weights = decoder(100 * torch.randn(2, 9, 5), torch.full((2, 1, 3), 7))
    assert logits.std() < 2  # though each word is scored by its own embedding, too
    assert weights.max() < 0.9  # though the annotation vectors are large
