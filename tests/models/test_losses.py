import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from captioning.data.vocabulary import EOS, PAD
from captioning.models.losses import cross_entropy, doubly_stochastic_penalty

TARGETS = torch.tensor(
    [
        [[4, 5, EOS, PAD], [6, EOS, PAD, PAD]],
        [[5, 6, 4, EOS], [PAD, PAD, PAD, PAD]],  # an image with one caption only
    ]
)
REAL = TARGETS != PAD


@pytest.fixture
def logits() -> Tensor:
    return torch.randn(2, 2, 4, 7, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def scores() -> Tensor:
    """Scores of six regions for every word, before the softmax."""
    return torch.randn(2, 2, 4, 6, generator=torch.Generator().manual_seed(1))


def test_cross_entropy_is_the_sum_over_all_words(logits: Tensor) -> None:
    log_probs = logits.log_softmax(-1)
    words = [-log_probs[b, n, t, TARGETS[b, n, t]].item() for b, n, t in REAL.nonzero().tolist()]
    assert len(words) == 9
    assert cross_entropy(logits, TARGETS).item() == pytest.approx(sum(words))


def test_label_smoothing_spreads_its_share_over_the_vocabulary(logits: Tensor) -> None:
    log_probs = logits.log_softmax(-1)[REAL]
    target = 0.9 * F.one_hot(TARGETS[REAL], 7) + 0.1 / 7
    expected = -(target * log_probs).sum()
    torch.testing.assert_close(cross_entropy(logits, TARGETS, 0.1), expected)


def test_even_attention_has_no_penalty() -> None:
    weights = torch.full((2, 2, 4, 6), 1 / 6)
    assert doubly_stochastic_penalty(weights, REAL).item() == pytest.approx(0, abs=1e-12)


def test_the_penalty_is_summed_over_regions_and_captions() -> None:
    # Three words that all look at the first of four regions, of which each has 3/4 as fair share:
    # (9/4)^2 + 3 (3/4)^2 = 27/4. Two words of the second caption: (3/2)^2 + 3 (1/2)^2 = 3.
    weights = torch.zeros(1, 2, 3, 4)
    weights[..., 0] = 1
    real = torch.tensor([[[True, True, True], [True, True, False]]])
    assert doubly_stochastic_penalty(weights, real).item() == pytest.approx(27 / 4 + 3)


def test_the_attention_of_padding_does_not_count(scores: Tensor) -> None:
    changed = scores.clone()
    changed[~REAL] += 5 * torch.arange(6)
    first, second = (
        doubly_stochastic_penalty(given.softmax(-1), REAL) for given in (scores, changed)
    )
    assert first.equal(second)


def test_the_penalty_has_the_gradient_of_the_papers(scores: Tensor) -> None:
    weights = scores.requires_grad_().softmax(-1)
    papers = [
        (1 - weights[b, n][REAL[b, n]].sum(0)).square().sum() for b, n in ((0, 0), (0, 1), (1, 0))
    ]
    penalties = doubly_stochastic_penalty(weights, REAL), torch.stack(papers).sum()
    ours, wanted = (torch.autograd.grad(p, scores, retain_graph=True)[0] for p in penalties)
    assert wanted.abs().max() > 0.01
    torch.testing.assert_close(ours, wanted, rtol=1e-4, atol=1e-6)
