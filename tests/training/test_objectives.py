from typing import Any

import pytest
import torch
from torch import Tensor

from captioning.captioner import Captioner
from captioning.data.dataset import Batch
from captioning.data.vocabulary import BOS, EOS, PAD
from captioning.models.losses import cross_entropy
from captioning.training import CrossEntropy

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
    total, divisor, _ = CrossEntropy(0.0, penalty)(captioner, seen, BATCH)
    assert divisor == words == 9
    assert total.item() == pytest.approx(expected, rel=1e-5)


def test_label_smoothing_is_the_decoders(captioner: Captioner, seen: Tensor) -> None:
    total, _, _ = CrossEntropy(0.2, 0.0)(captioner, seen, BATCH)
    memory = captioner.model.remember(seen)
    logits, _ = captioner.model.decoder.teacher_forcing(memory, TOKENS[..., :-1])
    torch.testing.assert_close(total, cross_entropy(logits, TOKENS[..., 1:], 0.2))


def test_the_loss_has_no_nan_where_a_caption_is_padding(captioner: Captioner, seen: Tensor) -> None:
    options: dict[str, Any] = {"label_smoothing": 0.1, "attention_penalty": 1.0}
    CrossEntropy(**options)(captioner, seen.requires_grad_(), BATCH).total.backward()
    assert seen.grad is not None
    assert seen.grad.isfinite().all()
