import math

import pytest
import torch
from torch import Tensor

from captioning.captioner import Captioner
from captioning.data.dataset import Batch
from captioning.data.vocabulary import BOS, EOS, PAD
from captioning.errors import InputError
from captioning.models import LSTMDecoder
from captioning.training import CrossEntropy, GuidedAttention
from captioning.training.guided_attention import contrast_loss, guide_loss

TOKENS = torch.tensor(
    [
        [[BOS, 4, 5, EOS, PAD], [BOS, 6, EOS, PAD, PAD]],
        [[BOS, 5, 7, 4, EOS], [PAD, PAD, PAD, PAD, PAD]],
    ]
)
BATCH = Batch(torch.empty(0), TOKENS, [])


@pytest.fixture
def seen(captioner: Captioner) -> Tensor:
    """Annotation vectors of two images, on the grid of the captioner's encoder."""
    generator = torch.Generator().manual_seed(3)
    return torch.randn(2, 16, captioner.encoder.annotation_dim, generator=generator)


def test_without_its_terms_it_is_the_cross_entropy(captioner: Captioner, seen: Tensor) -> None:
    total, divisor, _ = GuidedAttention(0.1, 0.5, 0.0, 0.0)(captioner, seen, BATCH)
    expected = CrossEntropy(0.1, 0.5)(captioner, seen, BATCH)
    torch.testing.assert_close((total, divisor), (expected.total, expected.divisor))


def test_both_terms_count_as_often_as_words(captioner: Captioner, seen: Tensor) -> None:
    plain = CrossEntropy(0.1, 0.0)(captioner, seen, BATCH)
    total, divisor, figures = GuidedAttention(0.1, 0.0, 2.0, 3.0)(captioner, seen, BATCH)
    added = 2.0 * figures["contrast"] + 3.0 * figures["guide"]
    assert figures["contrast"] > 0
    assert figures["guide"] > 0
    torch.testing.assert_close(total, plain.total + divisor * added)


def test_the_contrast_is_a_photos_share_among_those_without_the_word() -> None:
    # By hand: one region each; word 0 is only of photo 0, word 1 of all, word 2 of none.
    evidence = torch.tensor([[2.0, 9.0, 5.0], [1.0, 9.0, 5.0], [0.5, 9.0, 5.0]])[..., None]
    spoken = torch.tensor([[True, True, False], [False, True, False], [False, True, False]])
    share = math.exp(2.0) / (math.exp(2.0) + math.exp(1.0) + math.exp(0.5))
    assert contrast_loss(evidence, spoken).item() == pytest.approx(-math.log(share))


def test_regions_are_pooled_by_the_mean_of_their_exponentials() -> None:
    evidence = torch.tensor([[[1.0, 3.0]], [[0.0, 0.0]]])
    pooled = math.log((math.exp(1.0) + math.exp(3.0)) / 2)
    found = contrast_loss(evidence, torch.tensor([[True], [False]]))
    assert found.item() == pytest.approx(-math.log(math.exp(pooled) / (math.exp(pooled) + 1)))


def test_words_that_all_photos_have_cost_nothing_and_give_no_gradient() -> None:
    evidence = torch.randn(2, 3, 4, requires_grad=True)
    loss = contrast_loss(evidence, torch.ones(2, 3, dtype=torch.bool))
    loss.backward()
    assert loss == 0
    assert evidence.grad is not None
    assert (evidence.grad == 0).all()


def test_the_guide_is_the_divergence_from_peaked_maps() -> None:
    # By hand: an even map is not peaked and does not count; a map of one region counts in full.
    wanted = torch.tensor([[[[1.0, 0.0, 0.0, 0.0], [0.25, 0.25, 0.25, 0.25]]]])
    weights = torch.tensor([[[[0.5, 0.5, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]]]])
    named = torch.ones(1, 1, 2, dtype=torch.bool)
    assert guide_loss(weights, wanted, named).item() == pytest.approx(math.log(2))
    assert guide_loss(weights, wanted, ~named) == 0
    assert guide_loss(wanted, wanted, named).item() == pytest.approx(0, abs=1e-6)


def test_the_guide_moves_the_attention_and_not_the_evidence(
    captioner: Captioner, seen: Tensor
) -> None:
    decoder = captioner.decoder
    assert isinstance(decoder, LSTMDecoder)
    total, _, _ = GuidedAttention(0.1, 0.0, 0.0, 1.0)(captioner, seen, BATCH)
    plain = CrossEntropy(0.1, 0.0)(captioner, seen, BATCH).total
    parameters = [decoder.output_context.weight, *decoder.attention.parameters()]
    moved = torch.autograd.grad(total - plain, parameters)
    assert moved[0].abs().max() < 1e-6  # no word reads its own guide through the deep output
    assert max(part.abs().max().item() for part in moved[1:]) > 1e-3


@pytest.mark.parametrize("guide", [0.0, 1.0])
def test_with_the_guide_attention_comes_to_agree_with_evidence(
    captioner: Captioner, seen: Tensor, guide: float
) -> None:
    decoder = captioner.decoder
    optimizer = torch.optim.Adam(decoder.parameters(), lr=0.05)
    tokens = torch.tensor([[[BOS, 4, 5, EOS]], [[BOS, 6, 7, EOS]]])  # no word is of both images
    batch = Batch(torch.empty(0), tokens, [])
    for _ in range(40):
        optimizer.zero_grad()
        total, divisor, figures = GuidedAttention(0.0, 0.0, 0.5, guide)(captioner, seen, batch)
        (total / divisor).backward()
        optimizer.step()
    assert figures["contrast"] < 0.01  # either way regions have learnt their words
    assert (figures["guide"] < 0.5) == bool(guide)  # nats


def test_a_decoder_without_evidence_is_refused(captioner: Captioner, seen: Tensor) -> None:
    width = captioner.encoder.annotation_dim
    captioner.decoder = LSTMDecoder(width, 8, 6, 7, 4, deep_output=False)
    with pytest.raises(InputError, match="without deep output no word is scored by a region"):
        GuidedAttention()(captioner, seen, BATCH)
