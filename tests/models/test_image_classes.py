from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torchvision import models

from captioning.models import CNNEncoder
from captioning.models.backbones import classes_of

SIDE = 32


class Network(nn.Module):
    """Two channels, the mean over cells, and layers of the test's choice."""

    def __init__(self, *after_the_mean: nn.Module) -> None:
        super().__init__()
        self.features = nn.Conv2d(3, 2, kernel_size=4, stride=4)
        self.after_the_mean = nn.Sequential(*after_the_mean)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.after_the_mean(self.features(images).mean(dim=(2, 3)))
        return scores


def test_a_linear_layer_after_the_mean_scores_regions_too() -> None:
    layer = nn.Linear(2, 3)
    model = Network(nn.Dropout(0.5), layer)
    classes = classes_of(model, model.features, [["cat"], ["dog", "hound"], ["bird"]], SIDE)
    assert classes is not None
    assert classes.names == [["cat"], ["dog", "hound"], ["bird"]]
    torch.testing.assert_close((classes.weight, classes.bias), (layer.weight, layer.bias))
    assert model.training  # as it was


def test_a_missing_bias_is_zero() -> None:
    model = Network(nn.Linear(2, 3, bias=False))
    classes = classes_of(model, model.features, [["cat"], ["dog"], ["bird"]], SIDE)
    assert classes is not None
    assert classes.bias.tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    "after_the_mean",
    [
        lambda: [nn.Linear(2, 3), nn.ReLU()],
        lambda: [nn.Tanh(), nn.Linear(2, 3)],
        lambda: [nn.Linear(2, 5), nn.Linear(5, 3)],
        lambda: [nn.Linear(2, 4)],  # another number of classes than of names
        lambda: [],
    ],
)
def test_any_other_network_has_no_scores_of_regions(
    after_the_mean: Callable[[], list[nn.Module]],
) -> None:
    torch.manual_seed(0)
    model = Network(*after_the_mean())
    assert classes_of(model, model.features, [["cat"], ["dog"], ["bird"]], SIDE) is None


@pytest.mark.parametrize(
    ("backbone", "known"), [("mobilenet_v2", True), ("resnet18", True), ("convnext_tiny", False)]
)
def test_an_encoder_that_starts_from_weights_knows_their_classes(
    backbone: str, known: bool, tmp_path: Path
) -> None:
    model = models.get_model(backbone, weights=None)
    torch.save(model.state_dict(), tmp_path / "weights.pth")
    encoder = CNNEncoder(backbone, str(tmp_path / "weights.pth"))
    assert (encoder.classes is not None) == known
    if encoder.classes is not None:
        assert encoder.classes.names[963] == ("pizza",)
        assert encoder.classes.weight.shape == (1000, encoder.annotation_dim)
    assert CNNEncoder(backbone, None).classes is None
    assert not any("classes" in name for name in encoder.state_dict())
