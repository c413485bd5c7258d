"""The fast ways through the decoder against the plain ones that its promise spells out."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from captioning.data.vocabulary import BOS, EOS, PAD, UNK
from captioning.models import AdditiveAttention, DotProductAttention, LSTMDecoder, rows
from captioning.models.attention import Attention
from captioning.models.decoder import Decoder
from captioning.models.energies import BLOCK, Energies, exponential
from captioning.models.likelihood import CHUNK, linear_cross_entropy

LENGTHS = [[3, 6, 1], [5, 2, 0], [4, 4, 2]]
"""Words of each caption: unsorted, with ties, and one image with a caption fewer."""


class TanhOfDots(Attention):
    """An attention that brings nothing but `scores`, with a parameter of its own."""

    def __init__(self, query_dim: int, annotation_dim: int, attention_dim: int) -> None:
        super().__init__(query_dim, annotation_dim, attention_dim)
        self.sharpness = torch.nn.Parameter(torch.tensor(0.7))

    def scores(self, queries: Tensor, keys: Tensor) -> Tensor:
        return self.sharpness * (queries @ keys.transpose(1, 2)).tanh()


@pytest.fixture(autouse=True)
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that nine captions are enough for the loop to narrow, with some padding and without."""
    monkeypatch.setattr(rows, "FILLED", 2)


@pytest.fixture(params=[6, 16], ids=["fewer regions than words", "more"])
def annotations(request: pytest.FixtureRequest) -> Tensor:
    """What is linear in the context is computed of regions where these are fewer, else of words."""
    generator = torch.Generator().manual_seed(2)
    return torch.randn(3, request.param, 5, dtype=torch.double, generator=generator)


@pytest.fixture
def tokens() -> Tensor:
    tokens = torch.full((3, 3, 8), PAD)
    generator = torch.Generator().manual_seed(4)
    for image, lengths in enumerate(LENGTHS):
        for caption, length in enumerate(lengths):
            if length:
                words = torch.randint(4, 8, (length,), generator=generator)
                tokens[image, caption, : length + 2] = torch.tensor([BOS, *words.tolist(), EOS])
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
    ],
    ids=str,
)
@pytest.mark.parametrize("attention", [AdditiveAttention, DotProductAttention, TanhOfDots])
def test_the_fast_loss_and_its_gradients_are_those_of_steps(
    attention: type[Attention],
    options: dict[str, Any],
    masked: bool,
    annotations: Tensor,
    tokens: Tensor,
) -> None:
    decoder = made(attention, **options)
    annotations.requires_grad_()
    regions = annotations.shape[1]
    mask = None
    if masked:
        mask = torch.ones(3, regions, dtype=torch.bool)
        mask[0, 4:] = mask[2, 0] = False
    real = tokens[..., 1:] != PAD
    direction = torch.randn(3, 3, 7, regions, dtype=torch.double) * real[..., None]

    loss, weights = decoder.cross_entropy(decoder.remember(annotations, mask), tokens, 0.1)
    fast = gradients(loss + (weights * direction).sum(), decoder, annotations)

    logits, stepped = Decoder.read(decoder, decoder.remember(annotations, mask), tokens[..., :-1])
    plain = F.cross_entropy(
        logits[real], tokens[..., 1:][real], label_smoothing=0.1, reduction="sum"
    )
    slow = gradients(plain + (stepped * direction).sum(), decoder, annotations)

    torch.testing.assert_close(loss, plain)
    torch.testing.assert_close(weights[real], stepped[real])
    for name, gradient in slow.items():
        torch.testing.assert_close(fast[name], gradient, msg=lambda text, name=name: name + text)


def test_each_context_is_projected_only_where_there_are_more_regions(
    annotations: Tensor, tokens: Tensor
) -> None:
    decoder = made(AdditiveAttention)
    projected: list[int] = []
    decoder.output_context.register_forward_hook(lambda _, contexts, __: projected.append(1))
    decoder.cross_entropy(decoder.remember(annotations), tokens)
    assert bool(projected) == (annotations.shape[1] == 16)


def test_the_promises_own_cross_entropy_is_the_same(annotations: Tensor, tokens: Tensor) -> None:
    decoder = made(AdditiveAttention)
    memory = decoder.remember(annotations)
    fast, _ = decoder.cross_entropy(memory, tokens, 0.1)
    plain, _ = Decoder.cross_entropy(decoder, memory, tokens, 0.1)
    torch.testing.assert_close(fast, plain)


@pytest.mark.parametrize("fast", [True, False], ids=["fast", "plain"])
def test_captions_count_by_their_importance_among_words_that_can_be(
    fast: bool, annotations: Tensor, tokens: Tensor
) -> None:
    decoder, never = made(AdditiveAttention), [PAD, BOS, UNK]
    importance = torch.tensor([[0.5, -2.0, 1.0], [0.0, 3.0, 9.0], [-1.0, 1.0, 0.25]]).double()
    annotations.requires_grad_()
    kind = LSTMDecoder if fast else Decoder
    memory = decoder.remember(annotations)
    loss, _ = kind.cross_entropy(decoder, memory, tokens, importance=importance, never=never)
    found = gradients(loss, decoder, annotations)

    logits, _ = Decoder.read(decoder, decoder.remember(annotations), tokens[..., :-1])
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
    nothing = torch.full((3, 2, 5), PAD)
    decoder = made(AdditiveAttention)
    loss, weights = decoder.cross_entropy(decoder.remember(annotations), nothing)
    assert loss == 0
    assert weights.shape == (3, 2, 4, annotations.shape[1])


@pytest.mark.parametrize("attention", [AdditiveAttention, DotProductAttention])
def test_bfloat16_changes_the_gradients_by_its_rounding_only(
    attention: type[Attention], annotations: Tensor, tokens: Tensor
) -> None:
    decoder, annotations = made(attention).float(), annotations.float().requires_grad_()
    exact, _ = decoder.cross_entropy(decoder.remember(annotations), tokens)
    with torch.autocast("cpu", torch.bfloat16):
        rounded, _ = decoder.cross_entropy(decoder.remember(annotations), tokens)
    torch.testing.assert_close(rounded, exact, rtol=0.02, atol=0)
    slow, fast = gradients(exact, decoder, annotations), gradients(rounded, decoder, annotations)
    assert all(gradient.dtype == torch.float32 for gradient in fast.values())
    truth, found = (torch.cat([g.flatten() for g in part.values()]) for part in (slow, fast))
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
