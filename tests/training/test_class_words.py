from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torchvision import models

from captioning.data.vocabulary import SPECIAL, Vocabulary
from captioning.errors import InputError
from captioning.models import CNNEncoder
from captioning.training.guided_attention import Classes, ClassWords, classes_of, region_classes

NAMES = [["golden retriever"], ["tabby", "tabby cat"], ["siamese cat"], ["bus"], ["ocarina"]]


def class_words(*words: str) -> tuple[ClassWords, list[str]]:
    """Of these words; class c scores channel c of the annotation vectors, plus a tenth of c."""
    vocabulary = Vocabulary(words)
    classes = Classes(NAMES, torch.eye(5), torch.arange(5) / 10)
    found = ClassWords(classes, vocabulary, torch.device("cpu"))
    return found, [vocabulary.words[word - len(SPECIAL)] for word in found.words.tolist()]


def test_the_last_word_of_a_name_stands_for_the_class() -> None:
    words = ["a", "retriever", "golden", "cats", "tabby", "buses", "bus", "siamese", "dog"]
    _, named = class_words(*words)
    assert named == ["retriever", "cats", "tabby", "buses", "bus"]


def test_a_word_is_shown_by_whichever_of_its_classes_scores_most() -> None:
    found, named = class_words("cat", "retriever", "tabby")
    regions = torch.tensor([[[7.0, 1.0, 2.0, 9.0, 9.0], [0.0, 4.0, 3.0, 9.0, 9.0]]])
    assert named == ["cat", "retriever", "tabby"]
    expected = torch.tensor([[[2.2, 4.1], [7.0, 0.0], [1.1, 4.1]]])
    torch.testing.assert_close(found.shown(regions), expected)


class Network(nn.Module):
    """Two channels, the mean over cells, and layers of the test's choice."""

    def __init__(self, *after_the_mean: nn.Module) -> None:
        super().__init__()
        self.features = nn.Conv2d(3, 2, kernel_size=4, stride=4)
        self.after_the_mean = nn.Sequential(*after_the_mean)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.after_the_mean(self.features(images).mean(dim=(2, 3)))
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
    ("backbone", "known"), [("mobilenet_v2", True), ("resnet18", True), ("convnext_tiny", False)]
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
