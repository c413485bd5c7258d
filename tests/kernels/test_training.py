"""The LSTM's kernel against the plain model: loss, gradients, logits and weights."""

import logging
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from captioning.data.vocabulary import BOS, EOS, PAD
from captioning.kernels import accelerate, caption_cross_entropy, encoding_for_training, fast_lstm
from captioning.kernels.attention_scores import BLOCK_ELEMENTS, AdditiveKernel
from captioning.kernels.fast_lstm import PreparedMemory, dropout
from captioning.models import AdditiveAttention, Attention, DotProductAttention, Model
from tests.kernels.plain_models import EXACT, plain_model

IMAGES, CAPTIONS, WORDS = 12, 5, 9


@pytest.fixture(params=[6, 30], ids=["fewer regions than words", "more"])
def annotations(request: pytest.FixtureRequest) -> Tensor:
    """What is linear in the context is computed of regions if these are fewer, else of words."""
    generator = torch.Generator().manual_seed(2)
    return torch.randn(IMAGES, request.param, 5, dtype=torch.double, generator=generator)


@pytest.fixture
def tokens() -> Tensor:
    """Captions of none to seven words: unsorted, with ties."""
    generator = torch.Generator().manual_seed(4)
    lengths = torch.randint(0, WORDS - 1, (IMAGES, CAPTIONS), generator=generator)
    tokens = torch.randint(4, 8, (IMAGES, CAPTIONS, WORDS), generator=generator)
    tokens[..., 0] = BOS
    place = torch.arange(WORDS)
    tokens[place == lengths[..., None] + 1] = EOS
    tokens[place > lengths[..., None] + 1] = PAD
    tokens[2, 1] = PAD  # one image has a caption fewer
    return tokens


def gradients(loss: Tensor, model: Model, annotations: Tensor) -> dict[str, Tensor]:
    named = dict(model.named_parameters(), annotations=annotations)
    parts = torch.autograd.grad(loss, list(named.values()))
    return dict(zip(named, parts, strict=True))


@pytest.mark.parametrize(
    ("attention", "masked", "options"),
    [
        (AdditiveAttention, False, {}),
        (AdditiveAttention, True, {"query_with_word": True}),
        (AdditiveAttention, True, {"scalar_gate": False}),
        (AdditiveAttention, False, {"deep_output": False}),
        (AdditiveAttention, False, {"adapter": {"projection_dim": 6}}),
        (DotProductAttention, True, {}),
        (DotProductAttention, False, {"tie_embeddings": True, "query_with_word": True}),
        (DotProductAttention, False, {"scalar_gate": False, "deep_output": False}),
    ],
    ids=str,
)
def test_loss_gradients_and_weights_are_those_of_the_plain_model(
    attention: type[Attention],
    masked: bool,
    options: dict[str, Any],
    annotations: Tensor,
    tokens: Tensor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = plain_model(attention=attention, **options)
    monkeypatch.setattr(fast_lstm, "BLOCK_LOGITS", 5 * plain.decoder.vocab_size)
    annotations.requires_grad_()
    regions = annotations.shape[1]
    mask = None
    if masked:
        mask = torch.ones(IMAGES, regions, dtype=torch.bool)
        mask[0, 4:] = mask[2, 0] = False
    real = tokens[..., 1:] != PAD
    direction = torch.randn(*real.shape, regions, dtype=torch.double) * real[..., None]

    def computed(model: Model) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        memory = model.remember(annotations, mask)
        loss, weights = caption_cross_entropy(model.decoder, memory, tokens, 0.1)
        total = loss + (weights * direction).sum()
        return loss, weights[real], gradients(total, plain, annotations)

    *found, found_gradients = computed(accelerate(plain))
    *wanted, wanted_gradients = computed(plain)
    for part, wanted_part in zip(found, wanted, strict=True):
        assert_close(part, wanted_part, **EXACT)
    for name, gradient in wanted_gradients.items():
        assert_close(found_gradients[name], gradient, **EXACT)


@pytest.mark.parametrize(
    ("attention", "query_with_word"), [(AdditiveAttention, True), (DotProductAttention, False)]
)
def test_logits_and_their_gradients_are_those_of_the_plain_model(
    attention: type[Attention], query_with_word: bool, annotations: Tensor, tokens: Tensor
) -> None:
    plain = plain_model(attention=attention, query_with_word=query_with_word)
    annotations.requires_grad_()
    real = tokens != PAD
    found, wanted = (model(annotations, tokens) for model in (accelerate(plain), plain))
    for part, wanted_part in zip(found, wanted, strict=True):
        assert_close(part[real], wanted_part[real], **EXACT)
    direction = torch.randn_like(wanted[0]) * real[..., None]
    given, expected = (
        gradients((logits * direction).sum(), plain, annotations) for logits, _ in (found, wanted)
    )
    for name, gradient in expected.items():
        assert_close(given[name], gradient, **EXACT)


@pytest.mark.parametrize("attention", [AdditiveAttention, DotProductAttention])
def test_where_weights_are_dropped_the_plain_step_trains(
    attention: type[Attention],
    annotations: Tensor,
    tokens: Tensor,
    caplog: pytest.LogCaptureFixture,
) -> None:
    plain = plain_model(attention=partial(attention, dropout=0.4), dropout=0.3).train()
    annotations.requires_grad_()
    with caplog.at_level(logging.INFO):
        fast = accelerate(plain)
        encoding_for_training(fast)
    assert "the attention drops weights" in caplog.text

    def computed(model: Model) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        torch.manual_seed(5)
        memory = model.remember(annotations)
        loss, _ = caption_cross_entropy(model.decoder, memory, tokens, 0.1)
        first = model.decoder.step(tokens[..., 0], model.decoder.start(memory, CAPTIONS), memory)
        return loss, first.logits, gradients(loss, plain, annotations)

    (loss, logits, changes), (wanted, wanted_logits, wanted_changes) = map(computed, (fast, plain))
    assert loss.equal(wanted)
    assert logits.equal(wanted_logits)
    assert all(changes[name].equal(wanted_changes[name]) for name in changes)
    plain.eval()
    assert isinstance(fast.remember(annotations), PreparedMemory)
    evaluated, *_ = computed(fast)
    assert_close(evaluated, computed(plain)[0], **EXACT)
    assert not evaluated.allclose(loss)


def test_a_batch_without_a_word_costs_nothing(annotations: Tensor) -> None:
    nothing = torch.full((IMAGES, 2, 5), PAD)
    fast = accelerate(plain_model())
    loss, weights = caption_cross_entropy(fast.decoder, fast.remember(annotations), nothing)
    assert loss == 0
    assert weights.shape == (IMAGES, 2, 4, annotations.shape[1])


@pytest.mark.parametrize("attention", [AdditiveAttention, DotProductAttention])
def test_bfloat16_changes_the_gradients_by_its_rounding_only(
    attention: type[Attention], annotations: Tensor, tokens: Tensor
) -> None:
    plain = plain_model(attention=attention).float()
    annotations = annotations.float().requires_grad_()
    fast = accelerate(plain)
    exact, _ = caption_cross_entropy(plain.decoder, plain.remember(annotations), tokens)
    with torch.autocast("cpu", torch.bfloat16):
        rounded, _ = caption_cross_entropy(fast.decoder, fast.remember(annotations), tokens)
    assert_close(rounded, exact, rtol=0.02, atol=0)
    wanted, given = (gradients(loss, plain, annotations) for loss in (exact, rounded))
    assert all(gradient.dtype == torch.float32 for gradient in given.values())
    truth, found = (torch.cat([g.flatten() for g in part.values()]) for part in (wanted, given))
    assert (found - truth).norm() < 0.05 * truth.norm()


def test_dropout_keeps_its_share_and_the_mean() -> None:
    torch.manual_seed(0)
    module = torch.nn.Dropout(0.3)
    kept = dropout(torch.ones(100_003, 1), module)
    assert (kept == 0).float().mean() == pytest.approx(0.3, abs=0.01)
    assert kept.mean() == pytest.approx(1.0, abs=0.01)
    assert kept.max() == pytest.approx(1 / 0.7, rel=1e-3)
    assert dropout(kept, module.eval()).equal(kept)


def test_energies_in_blocks_have_the_formula_s_gradients() -> None:
    width = BLOCK_ELEMENTS // 64
    attention = AdditiveAttention(2, 2, width).double()
    v = attention.energy.weight
    queries = torch.randn(3, 4, width).double().requires_grad_()
    keys = torch.randn(3, 6, width).double().requires_grad_()
    plain = (queries[:, :, None] + keys[:, None]).tanh() @ v[0]
    towards = torch.randn_like(plain)
    wanted = torch.autograd.grad(plain, [queries, keys, v], towards)
    kernel = AdditiveKernel(attention)
    with torch.no_grad():
        prepared = kernel.prepare(keys)
        assert_close(kernel.scores(queries, prepared), plain)
        of_prepared, of_v = torch.zeros_like(keys), torch.zeros_like(v)
        of_queries = kernel.add_gradients(towards, queries, prepared, of_prepared, [of_v])
    of_keys = of_prepared * 2 * prepared  # prepared keys are exp(2 k)
    assert_close((of_queries, of_keys, of_v), wanted)
