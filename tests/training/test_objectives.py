"""Cross-entropy with the paper's penalty, and smoothed labels."""

from typing import Any

import pytest
import torch
from torch import Tensor

from captioning.captioner import Captioner
from captioning.data.dataset import Batch
from captioning.data.vocabulary import BOS, EOS, PAD
from captioning.training import CrossEntropy
from captioning.training.objectives import grid_of
from tests.training.conftest import loss_of

TOKENS = torch.tensor(
    [
        [[BOS, 4, 5, EOS, PAD], [BOS, 6, EOS, PAD, PAD]],
        [[BOS, 5, 6, 4, EOS], [PAD, PAD, PAD, PAD, PAD]],  # an image with one caption only
    ]
)
BATCH = Batch(torch.empty(0), TOKENS, [])


@pytest.fixture
def seen(captioner: Captioner) -> Tensor:
    """Annotation vectors of two images."""
    return torch.randn(2, 4, captioner.model.encoder.annotation_dim)


@pytest.mark.parametrize("penalty", [0.0, 0.5])
def test_the_loss_is_equation_14_per_word(
    captioner: Captioner, seen: Tensor, penalty: float
) -> None:
    logits, weights = captioner.model.decoder(seen, TOKENS[..., :-1])
    log_probs = logits.log_softmax(-1)
    expected, words = 0.0, 0
    for b, n in ((0, 0), (0, 1), (1, 0)):
        targets = [int(token) for token in TOKENS[b, n, 1:] if token != PAD]
        likelihood = sum(log_probs[b, n, t, word].item() for t, word in enumerate(targets))
        fair = len(targets) / 4
        uneven = (fair - weights[b, n, : len(targets)].sum(0)).square().sum().item()
        expected += penalty * uneven - likelihood
        words += len(targets)
    total, divisor, _ = loss_of(CrossEntropy(0.0, penalty), captioner, seen, BATCH)
    assert divisor == words == 9
    assert total.item() == pytest.approx(expected, rel=1e-5)


def test_the_loss_has_no_nan_where_a_caption_is_padding(captioner: Captioner, seen: Tensor) -> None:
    options: dict[str, Any] = {"label_smoothing": 0.1, "attention_penalty": 1.0}
    loss_of(CrossEntropy(**options), captioner, seen.requires_grad_(), BATCH).total.backward()
    assert seen.grad is not None
    assert seen.grad.isfinite().all()


def test_the_regions_of_a_window_are_a_square(captioner: Captioner) -> None:
    encoder = captioner.model.encoder
    rows, columns = encoder.grid(32, 32)
    width = encoder.annotation_dim
    assert grid_of(encoder, 32, torch.empty(1, rows * columns, width)) == (rows, columns)
    assert grid_of(encoder, 32, torch.empty(1, 1, width)) == (1, 1)
