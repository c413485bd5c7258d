"""The LSTM's kernel against the plain decoder: loss, gradients, logits and weights."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from captioning.data.vocabulary import BOS, EOS, PAD, UNK
from captioning.kernels import accelerated
from captioning.kernels.additive import BLOCK, Energies, exponential
from captioning.kernels.linear_cross_entropy import CHUNK, linear_cross_entropy
from captioning.models import AdditiveAttention, DotProductAttention, LSTMDecoder
from captioning.models.attention import Attention
from captioning.models.decoder import Decoder

IMAGES, CAPTIONS, WORDS = 12, 5, 9
EXACT: Any = {"rtol": 1e-10, "atol": 1e-10}


@pytest.fixture(params=[6, 30], ids=["fewer regions than words", "more"])
def annotations(request: pytest.FixtureRequest) -> Tensor:
    """What is linear in the context is computed of regions where these are fewer, else of words."""
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


def made(attention: type[Attention], **options: Any) -> LSTMDecoder:
    torch.manual_seed(1)
    decoder = LSTMDecoder(5, 8, 6, 7, 4, attention=attention, **options)
    for parameter in decoder.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    return decoder.double().eval()


def gradients(loss: Tensor, decoder: LSTMDecoder, annotations: Tensor) -> dict[str, Tensor]:
    named = dict(decoder.named_parameters(), annotations=annotations)
    parts = torch.autograd.grad(loss, list(named.values()))
    return dict(zip(named, parts, strict=True))


@pytest.mark.parametrize("masked", [False, True], ids=["all regions", "masked"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"query_with_word": True},
        {"projection_dim": 6},
        {"tie_embeddings": True, "query_with_word": True},
        {"scalar_gate": False},
        {"deep_output": False},
        {"start_from_mean": False},
        {"smooth_keys": True, "grid_columns": 3},
        {"scalar_gate": False, "deep_output": False, "start_from_mean": False},
    ],
    ids=str,
)
@pytest.mark.parametrize("attention", [AdditiveAttention, DotProductAttention])
def test_loss_gradients_and_weights_are_those_of_the_plain_decoder(
    attention: type[Attention],
    options: dict[str, Any],
    masked: bool,
    annotations: Tensor,
    tokens: Tensor,
) -> None:
    plain = made(attention, **options)
    annotations.requires_grad_()
    regions = annotations.shape[1]
    mask = None
    if masked:
        mask = torch.ones(IMAGES, regions, dtype=torch.bool)
        mask[0, 4:] = mask[2, 0] = False
    real = tokens[..., 1:] != PAD
    direction = torch.randn(*real.shape, regions, dtype=torch.double) * real[..., None]

    def computed(decoder: Decoder) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        loss, weights = decoder.cross_entropy(decoder.remember(annotations, mask), tokens, 0.1)
        total = loss + (weights * direction).sum()
        return loss, weights[real], gradients(total, plain, annotations)

    fast = accelerated(plain)
    assert fast is not plain
    *found, found_gradients = computed(fast)
    *wanted, wanted_gradients = computed(plain)
    for part, wanted_part in zip(found, wanted, strict=True):
        torch.testing.assert_close(part, wanted_part, **EXACT)
    for name, gradient in wanted_gradients.items():
        torch.testing.assert_close(found_gradients[name], gradient, **EXACT)


@pytest.mark.parametrize("attention", [AdditiveAttention, DotProductAttention])
@pytest.mark.parametrize("query_with_word", [False, True])
def test_logits_are_those_of_the_plain_decoder(
    attention: type[Attention], query_with_word: bool, annotations: Tensor, tokens: Tensor
) -> None:
    plain = made(attention, query_with_word=query_with_word)
    real = tokens != PAD
    for part, wanted in zip(
        accelerated(plain)(annotations, tokens), plain(annotations, tokens), strict=True
    ):
        torch.testing.assert_close(part[real], wanted[real], **EXACT)


def test_the_kernel_takes_memory_of_the_plain_decoder(annotations: Tensor, tokens: Tensor) -> None:
    plain = made(AdditiveAttention)
    memory = plain.remember(annotations)
    fast, _ = accelerated(plain).cross_entropy(memory, tokens, 0.1)
    torch.testing.assert_close(fast, plain.cross_entropy(memory, tokens, 0.1)[0], **EXACT)


@pytest.mark.parametrize("fast", [True, False], ids=["fast", "plain"])
def test_losses_are_weighted_by_importance_over_words_that_can_be_generated(
    fast: bool, annotations: Tensor, tokens: Tensor
) -> None:
    decoder, never = made(AdditiveAttention), [PAD, BOS, UNK]
    importance = torch.randn(IMAGES, CAPTIONS, dtype=torch.double)
    annotations.requires_grad_()
    computing = accelerated(decoder) if fast else decoder
    memory = computing.remember(annotations)
    loss, _ = computing.cross_entropy(memory, tokens, importance=importance, never=never)
    found = gradients(loss, decoder, annotations)

    logits, _ = decoder(annotations, tokens[..., :-1])
    possible = torch.ones(8, dtype=torch.bool)
    possible[never] = False
    normaliser = logits[..., possible].logsumexp(-1, keepdim=True)
    log_probs = (logits - normaliser).gather(3, tokens[..., 1:, None]).squeeze(3)
    of_captions = log_probs.masked_fill(tokens[..., 1:] == PAD, 0.0).sum(2)
    plain = -(importance * of_captions).sum()
    torch.testing.assert_close(loss, plain)
    for name, gradient in gradients(plain, decoder, annotations).items():
        torch.testing.assert_close(found[name], gradient)


def test_a_batch_without_a_word_costs_nothing(annotations: Tensor) -> None:
    nothing = torch.full((IMAGES, 2, 5), PAD)
    decoder = accelerated(made(AdditiveAttention))
    loss, weights = decoder.cross_entropy(decoder.remember(annotations), nothing)
    assert loss == 0
    assert weights.shape == (IMAGES, 2, 4, annotations.shape[1])


@pytest.mark.parametrize("attention", [AdditiveAttention, DotProductAttention])
def test_bfloat16_changes_the_gradients_by_its_rounding_only(
    attention: type[Attention], annotations: Tensor, tokens: Tensor
) -> None:
    decoder, annotations = made(attention).float(), annotations.float().requires_grad_()
    fast = accelerated(decoder)
    exact, _ = decoder.cross_entropy(decoder.remember(annotations), tokens)
    with torch.autocast("cpu", torch.bfloat16):
        rounded, _ = fast.cross_entropy(fast.remember(annotations), tokens)
    torch.testing.assert_close(rounded, exact, rtol=0.02, atol=0)
    wanted, given = (gradients(loss, decoder, annotations) for loss in (exact, rounded))
    assert all(gradient.dtype == torch.float32 for gradient in given.values())
    truth, found = (torch.cat([g.flatten() for g in part.values()]) for part in (wanted, given))
    assert (found - truth).norm() < 0.05 * truth.norm()


def test_energies_are_those_of_their_formula_in_many_blocks() -> None:
    width = BLOCK // 64
    queries, keys = torch.randn(3, 4, width).double(), torch.randn(3, 6, width).double()
    direction = torch.randn(1, width).double()
    inputs = [part.requires_grad_() for part in (queries, keys, direction)]
    plain = (queries[:, :, None] + keys[:, None]).tanh() @ direction[0]
    fast = Energies.apply(queries, exponential(keys), direction)
    torch.testing.assert_close(fast, plain)
    towards = torch.randn_like(plain)
    for a, b in zip(
        torch.autograd.grad(fast, inputs, towards),
        torch.autograd.grad(plain, inputs, towards),
        strict=True,
    ):
        torch.testing.assert_close(a, b)


def test_huge_queries_and_keys_saturate_the_energies() -> None:
    huge = torch.tensor([[[1e4, -1e4]]])
    energies = Energies.apply(huge, exponential(huge), torch.tensor([[1.0, 0.25]]))
    assert energies.item() == 0.75


@pytest.mark.parametrize("weighted", [False, True], ids=["all alike", "by importance"])
def test_cross_entropy_in_chunks_is_torchs(weighted: bool) -> None:
    rows, words = 7, CHUNK["cpu"] // 3
    x, weight, bias = torch.randn(rows, 2), torch.randn(words, 2), torch.randn(words)
    targets = torch.randint(words, (rows,))
    importance = torch.randn(rows).double() if weighted else torch.ones(rows).double()
    inputs = [part.double().requires_grad_() for part in (x, weight, bias)]
    fast = linear_cross_entropy(*inputs, targets, 0.1, importance if weighted else None)
    of_words = F.cross_entropy(F.linear(*inputs), targets, label_smoothing=0.1, reduction="none")
    plain = of_words @ importance
    torch.testing.assert_close(fast, plain)
    for a, b in zip(
        torch.autograd.grad(2 * fast, inputs), torch.autograd.grad(2 * plain, inputs), strict=True
    ):
        torch.testing.assert_close(a, b)
