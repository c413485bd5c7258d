import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close
from torchvision import models

from captioning.captioner import Captioner
from captioning.data.dataset import Batch
from captioning.data.vocabulary import BOS, EOS, PAD, SPECIAL, Vocabulary
from captioning.errors import InputError
from captioning.kernels import caption_cross_entropy
from captioning.maps.evidence_map import SHARPNESS, evidence_shares
from captioning.maps.evidence_map import evidence as evidence_of
from captioning.models import Adapter, CNNEncoder, LSTMDecoder, Model
from captioning.models.decoder import Memory
from captioning.training import CrossEntropy, GuidedAttention, guided_attention
from captioning.training.guided_attention import (
    Classes,
    ClassWords,
    class_loss,
    classes_of,
    contrast_loss,
    guide_loss,
    region_classes,
)
from tests.training.conftest import Patch, learnt, loss_of

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
    return torch.randn(2, 16, captioner.model.encoder.annotation_dim, generator=generator)


def test_without_its_terms_it_is_the_cross_entropy(captioner: Captioner, seen: Tensor) -> None:
    total, divisor, _ = loss_of(GuidedAttention(0.1, 0.5, 0.0, 0.0), captioner, seen, BATCH)
    expected = loss_of(CrossEntropy(0.1, 0.5), captioner, seen, BATCH)
    torch.testing.assert_close((total, divisor), (expected.total, expected.divisor))


def test_the_contrast_is_a_share_among_photos_without_the_word() -> None:
    # By hand: one region each; word 0 is only of photo 0, word 1 of all, word 2 of none.
    evidence = torch.tensor([[2.0, 9.0, 5.0], [1.0, 9.0, 5.0], [0.5, 9.0, 5.0]])[..., None]
    labels = torch.tensor([[True, True, False], [False, True, False], [False, True, False]])
    share = math.exp(2.0) / (math.exp(2.0) + math.exp(1.0) + math.exp(0.5))
    assert contrast_loss(evidence, labels).item() == pytest.approx(-math.log(share))


def test_the_guide_is_the_divergence_from_peaked_maps() -> None:
    # By hand: an even map is not peaked and does not count; a map of one region counts in full.
    target = torch.tensor([[[[1.0, 0.0, 0.0, 0.0], [0.25, 0.25, 0.25, 0.25]]]])
    weights = torch.tensor([[[[0.5, 0.5, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]]]])
    is_word = torch.ones(1, 1, 2, dtype=torch.bool)
    assert guide_loss(weights, target, is_word).item() == pytest.approx(math.log(2))
    assert guide_loss(weights, target, ~is_word) == 0
    assert guide_loss(target, target, is_word).item() == pytest.approx(0, abs=1e-6)


@pytest.mark.integration
@pytest.mark.parametrize("guide", [0.0, 1.0])
def test_with_the_guide_attention_comes_to_agree_with_evidence(
    captioner: Captioner, seen: Tensor, guide: float
) -> None:
    tokens = torch.tensor([[[BOS, 4, 5, EOS]], [[BOS, 6, 7, EOS]]])  # no word is of both images
    batch = Batch(torch.empty(0), tokens, [])
    objective = GuidedAttention(0.0, 0.0, 0.5, guide)
    *_, figures = learnt(60, 0.05, objective, captioner, seen, batch)
    assert figures["contrast"] < 0.01  # either way regions have learnt their words
    assert (figures["guide"] < 0.5) == bool(guide)  # nats


def test_evidence_that_agrees_with_the_classes_costs_nothing() -> None:
    scores = torch.randn(3, 2, 4)
    # The map is four times as sharp as the evidence; what all regions have in common says nothing.
    evidence = scores / SHARPNESS + torch.tensor([[1.0], [-2.0]])
    assert class_loss(evidence, scores).item() == pytest.approx(0, abs=1e-6)


def test_the_class_loss_is_a_divergence_over_the_batch() -> None:
    # By hand: two photos of one region each; the second shows the only word three times as much.
    scores = torch.tensor([[[0.0]], [[math.log(3)]]])
    expected = 0.25 * math.log(0.25 / 0.5) + 0.75 * math.log(0.75 / 0.5)
    assert class_loss(torch.zeros(2, 1, 1), scores).item() == pytest.approx(expected)


@pytest.fixture
def knowing(captioner: Captioner, monkeypatch: Patch) -> Captioner:
    """Its encoder tells cats from dogs; its decoder begins with little evidence for either."""
    captioner.vocabulary = Vocabulary(["cat", "dog", "a", "on"])
    generator = torch.Generator().manual_seed(5)
    weight = torch.randn(2, captioner.model.encoder.annotation_dim, generator=generator) / 5
    classes = Classes([["tiger cat"], ["dog"]], weight, torch.zeros(2))
    monkeypatch.setattr(guided_attention, "classes_of", lambda encoder: classes)
    decoder = captioner.model.decoder
    assert isinstance(decoder, LSTMDecoder)
    torch.nn.init.normal_(decoder.output_context.weight, std=0.02)
    return captioner


@pytest.mark.integration
def test_evidence_learns_where_the_encoders_classes_are(knowing: Captioner, seen: Tensor) -> None:
    objective = GuidedAttention(0.0, 0.0, 0.0, 0.0, classes=1.0)
    *_, figures = learnt(120, 0.02, objective, knowing, seen, BATCH)
    assert figures["classes"] < 0.1  # nats
    classes = guided_attention.classes_of(knowing.model.encoder)
    assert classes is not None
    target = (seen @ classes.weight.T).transpose(1, 2)
    words = torch.tensor([4, 5]).expand(2, 1, -1)
    decoder = knowing.model.decoder
    assert isinstance(decoder, LSTMDecoder)
    regions = decoder.output_context(knowing.model.adapter(seen))
    evidence = evidence_of(decoder, regions, words).squeeze(1)
    assert (evidence.argmax(dim=2) == target.argmax(dim=2)).all()


@pytest.mark.parametrize("kernels", [False, True], ids=["plain", "kernels"])
@pytest.mark.parametrize("region_layers", [0, 1])
def test_its_loss_is_composed_of_two_passes_of_the_adapter(
    knowing: Captioner, seen: Tensor, region_layers: int, kernels: bool, monkeypatch: Patch
) -> None:
    encoder, vocabulary = knowing.model.encoder, knowing.vocabulary
    known = guided_attention.classes_of(encoder)
    assert known is not None
    precise = Classes(known.names, known.weight.double(), known.bias.double())
    monkeypatch.setattr(guided_attention, "classes_of", lambda encoder: precise)
    adapter = Adapter(
        encoder.annotation_dim, 16, dropout=0.5, region_layers=region_layers, region_heads=2
    )
    decoder = LSTMDecoder(16, len(vocabulary), 16, 16, 16, dropout=0.0)
    model = Model(encoder, adapter, decoder).double().train()
    captioner = Captioner(model, vocabulary, knowing.preprocessing, kernels=kernels)
    annotations = seen.double().requires_grad_()
    targets = TOKENS[..., 1:]

    torch.manual_seed(1)
    memory = model.remember(annotations)
    expected, weights = caption_cross_entropy(decoder, memory, TOKENS, 0.1)
    adapter.eval()
    undropped = model.remember(annotations)
    adapter.train()

    def evidence(memory: Memory, words: Tensor) -> Tensor:
        """In single precision, as in the objective: it has to be under autocast."""
        regions = decoder.output_context(memory.annotations)
        return evidence_of(decoder, regions, words.expand(2, -1, -1)).float()

    words = torch.tensor([4, 5, 6, 7])  # those of the captions
    labels = (targets[..., None] == words).flatten(1, 2).any(dim=1)
    contrast = contrast_loss(evidence(memory, words[None])[:, 0], labels)
    maps = evidence_shares(evidence(undropped, targets).detach(), (4, 4))
    guide = guide_loss(weights, maps, targets >= len(SPECIAL))
    found = ClassWords(precise, vocabulary, annotations.device)
    of_classes = evidence(undropped, found.words[None])[:, 0]
    classes = class_loss(of_classes, found.scores(annotations.detach()))
    expected = expected + (targets != PAD).sum() * (0.2 * contrast + 0.3 * guide + 0.4 * classes)

    torch.manual_seed(1)
    total, _, _ = loss_of(GuidedAttention(0.1, 0.0, 0.2, 0.3, 0.4), captioner, annotations, BATCH)
    assert_close(total, expected)
    trained = [annotations, *adapter.parameters(), *decoder.parameters()]
    assert_close(*(torch.autograd.grad(loss, trained) for loss in (total, expected)))


def test_an_encoder_without_classes_is_refused(captioner: Captioner, seen: Tensor) -> None:
    with pytest.raises(InputError, match="the encoder has no classes: it needs weights"):
        loss_of(GuidedAttention(classes=0.5), captioner, seen, BATCH)


NAMES = [["golden retriever"], ["tabby", "tabby cat"], ["siamese cat"], ["bus"], ["ocarina"]]


def class_words(*words: str) -> tuple[ClassWords, list[str]]:
    """Of these words; class c scores channel c of the annotation vectors, plus a tenth of c."""
    vocabulary = Vocabulary(words)
    classes = Classes(NAMES, torch.eye(5), torch.arange(5) / 10)
    found = ClassWords(classes, vocabulary, torch.device("cpu"))
    return found, [vocabulary.words[word - len(SPECIAL)] for word in found.words.tolist()]


def test_the_last_word_of_a_name_stands_for_the_class() -> None:
    words = ["a", "retriever", "golden", "cats", "tabby", "buses", "bus", "siamese", "dog"]
    _, names = class_words(*words)
    assert names == ["retriever", "cats", "tabby", "buses", "bus"]


def test_a_word_is_shown_by_whichever_of_its_classes_scores_most() -> None:
    found, names = class_words("cat", "retriever", "tabby")
    regions = torch.tensor([[[7.0, 1.0, 2.0, 9.0, 9.0], [0.0, 4.0, 3.0, 9.0, 9.0]]])
    assert names == ["cat", "retriever", "tabby"]
    expected = torch.tensor([[[2.2, 4.1], [7.0, 0.0], [1.1, 4.1]]])
    torch.testing.assert_close(found.scores(regions), expected)


class Network(nn.Module):
    """Two channels, the mean over cells, and layers of the test's choice."""

    def __init__(self, *after_the_mean: nn.Module) -> None:
        super().__init__()
        self.features = nn.Conv2d(3, 2, kernel_size=4, stride=4)
        self.after_the_mean = nn.Sequential(*after_the_mean)

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = self.after_the_mean(self.features(images).mean(dim=(2, 3)))
        return scores


@pytest.mark.parametrize(
    ("after_the_mean", "scores_regions"),
    [
        (lambda: [nn.Dropout(0.5), nn.Linear(2, 3)], True),
        (lambda: [nn.Linear(2, 3), nn.ReLU()], False),
        (lambda: [nn.Tanh(), nn.Linear(2, 3)], False),
        (lambda: [nn.Linear(2, 5), nn.Linear(5, 3)], False),
        (lambda: [nn.Linear(2, 4)], False),  # another number of classes than of names
        (lambda: [], False),
    ],
)
def test_a_linear_layer_after_the_mean_scores_regions_too(
    after_the_mean: Callable[[], list[nn.Module]], scores_regions: bool
) -> None:
    torch.manual_seed(0)
    model, names = Network(*after_the_mean()), [["cat"], ["dog", "hound"], ["bird"]]
    classes = region_classes(model, model.features, names)
    assert (classes is not None) == scores_regions
    if classes is not None:
        layer = model.after_the_mean[-1]
        assert classes.names == names
        torch.testing.assert_close((classes.weight, classes.bias), (layer.weight, layer.bias))


@pytest.mark.parametrize(
    ("backbone", "known"),
    [("mobilenet_v2", True), ("resnet18", True), ("mobilenet_v3_large", False)],
)
def test_an_encoder_that_starts_from_weights_has_classes(
    backbone: str, known: bool, tmp_path: Path
) -> None:
    torch.save(models.get_model(backbone, weights=None).state_dict(), tmp_path / "weights.pth")
    encoder = CNNEncoder(backbone, str(tmp_path / "weights.pth"))
    if not known:
        with pytest.raises(InputError, match="the encoder has no classes"):
            classes_of(encoder)
        return
    classes = classes_of(encoder)
    assert classes.names[963] == ("pizza",)
    assert classes.weight.shape == (1000, encoder.annotation_dim)
