"""Backbones of timm: convolutional networks and vision transformers."""

from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from torch import Tensor, nn

from captioning.kernels.convolutions import folded
from captioning.models import CNNEncoder
from captioning.models.backbones import stages_of
from captioning.training.guided_attention import classes_of
from tests.conftest import quick_ones
from tests.models.test_encoder import images

LITE2 = "tf_efficientnet_lite2"
VIT = "vit_tiny_patch16_224"


IMAGES = images(64, 96)


def normalised(model: Any) -> Tensor:
    mean, std = (torch.tensor(model.pretrained_cfg[k]).view(3, 1, 1) for k in ("mean", "std"))
    return (IMAGES / 255 - mean) / std


@torch.no_grad()
def test_vectors_and_their_class_scores_are_timms(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = timm.create_model(LITE2)
    for part in model.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.momentum = 1.0  # so that it has statistics as a training leaves them
    model(normalised(model))
    torch.save(model.eval().state_dict(), tmp_path / "lite2.pth")
    encoder = CNNEncoder(f"timm/{LITE2}", str(tmp_path / "lite2.pth")).eval()
    features = model.forward_features(normalised(model))
    assert features.shape == (2, encoder.annotation_dim, *encoder.grid(64, 96)) == (2, 1280, 2, 3)
    assert features.abs().max() > 1
    annotations = encoder(IMAGES)
    expected = features.flatten(2).transpose(1, 2)
    torch.testing.assert_close(annotations, expected, rtol=0, atol=2e-3)
    classes = classes_of(encoder)
    assert classes is not None
    scores = annotations @ classes.weight.T + classes.bias
    torch.testing.assert_close(scores.mean(dim=1), model(normalised(model)), rtol=1e-3, atol=1e-3)
    assert classes.names[963] == ["pizza", "pizza pie"]


@pytest.mark.parametrize("number", quick_ones(range(5), lambda number: number == 0))
@torch.no_grad()
def test_our_efficientnets_are_timms(number: int) -> None:
    name = f"tf_efficientnet_lite{number}"
    torch.manual_seed(0)
    theirs = nn.Sequential(*stages_of(timm.create_model(name), f"timm/{name}")).eval()
    for part in theirs.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.running_mean.normal_(std=0.1)
            part.running_var.uniform_(0.5, 1.5)
    encoder = CNNEncoder(f"timm/{name}", weights=None).eval()
    encoder.stages.load_state_dict(theirs.state_dict())
    assert encoder.image_size == timm.get_pretrained_cfg(name).input_size[-1]
    x = torch.rand(2, 3, 75, 110).double()  # rounding differs by processor and memory format
    precise = encoder.double()
    torch.testing.assert_close(nn.Sequential(*precise.stages)(x), theirs.double()(x))
    without_norms = folded(precise)
    assert not any(isinstance(part, nn.BatchNorm2d) for part in without_norms.modules())
    torch.testing.assert_close(without_norms(IMAGES), precise(IMAGES))


@torch.no_grad()
def test_a_transformer_gives_patch_tokens_on_the_images_grid() -> None:
    torch.manual_seed(0)
    encoder = CNNEncoder(f"timm/{VIT}", weights=None).eval()
    assert encoder.grid(64, 96) == (4, 6)
    annotations = encoder(IMAGES)
    assert annotations.shape == (2, 24, 192)
    model = encoder.stages[0].model
    tokens = model.forward_features(normalised(model))
    torch.testing.assert_close(annotations, tokens[:, 1:])  # without the class token
