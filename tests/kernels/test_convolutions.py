import copy

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from captioning.kernels import folded, keep_depthwise_precise
from captioning.kernels.convolutions import PreciseDepthwise
from captioning.models import BACKBONES, CNNEncoder

ONE_OF_EACH_KIND = sorted(
    BACKBONES.keys()
    - {"resnet34", "resnet101", "resnet152", "efficientnet_v2_s"}
    - {"vgg16", "vgg19", "convnext_tiny"}  # without batch norm
)


def with_statistics(network: nn.Module) -> None:
    """Give batch norm the mean, variance, weight and bias that a training would."""
    for part in network.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.running_mean.normal_(0, 0.1)
            part.running_var.uniform_(0.5, 2)
            nn.init.uniform_(part.weight, 0.5, 1.5)
            nn.init.normal_(part.bias)


def norms(network: nn.Module) -> list[nn.Module]:
    return [part for part in network.modules() if isinstance(part, nn.BatchNorm2d)]


@torch.no_grad()
@pytest.mark.parametrize(
    "backbone",
    [
        *ONE_OF_EACH_KIND,
        "timm/resnet18",
        pytest.param("timm/tf_efficientnet_lite0", marks=pytest.mark.integration),
    ],
)
def test_a_folded_encoder_gives_the_same_without_batch_norm(backbone: str) -> None:
    torch.manual_seed(0)
    encoder = CNNEncoder(backbone, weights=None).eval()
    with_statistics(encoder)
    images = torch.randint(0, 256, (2, 3, 64, 64), dtype=torch.uint8)
    fast = folded(encoder)
    annotations = encoder(images)
    assert norms(encoder)
    assert not norms(fast)
    atol = 1e-5 * annotations.abs().max().item()
    assert_close(fast(images), annotations, rtol=1e-4, atol=atol)


def test_folding_leaves_the_network_as_it_was() -> None:
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    with_statistics(network)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    folded(network)
    assert network.training
    assert_close(dict(network.state_dict()), before, rtol=0, atol=0)


class Backwards(nn.Sequential):
    """Calls its batch norm first."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        convolution, norm = self
        return convolution(norm(images))


class Halved(nn.Conv2d):
    """Does more than its weights say."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) / 2


@pytest.mark.parametrize(
    "network",
    [
        Backwards(nn.Conv2d(3, 3, 3), nn.BatchNorm2d(3)),
        nn.Sequential(Halved(3, 3, 3), nn.BatchNorm2d(3)),
        nn.Sequential(nn.Conv2d(3, 3, 3), nn.ReLU(), nn.BatchNorm2d(3)),
    ],
    ids=["order unknown", "own convolution", "something between"],
)
def test_what_folding_would_change_stays(network: nn.Module) -> None:
    with_statistics(network.eval())
    image = torch.rand(1, 3, 16, 16)
    fast = folded(network)
    assert norms(fast)
    assert_close(fast(image), network(image), rtol=0, atol=0)


def depthwise_network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 1), nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.Conv2d(8, 2, 1)
    )


def test_precise_depthwise_convolutions_equal_the_plain_ones() -> None:
    plain, images = depthwise_network(), torch.rand(2, 3, 6, 6)
    fast = copy.deepcopy(plain)
    keep_depthwise_precise(fast)
    assert fast.state_dict().keys() == plain.state_dict().keys()
    for each in (plain, fast):
        each(images).square().sum().backward()
    for ours, theirs in zip(fast.parameters(), plain.parameters(), strict=True):
        assert_close(ours.grad, theirs.grad, rtol=0, atol=0)


def test_under_autocast_only_depthwise_convolutions_are_in_single_precision() -> None:
    fast = depthwise_network()
    keep_depthwise_precise(fast)
    with torch.autocast("cpu", torch.bfloat16):
        first = fast[0](torch.rand(1, 3, 4, 4))
        second = fast[1](first)
        assert (first.dtype, second.dtype, fast[2](second).dtype) == (
            torch.bfloat16,
            torch.float32,
            torch.bfloat16,
        )


def test_frozen_layers_and_subclasses_stay_as_they_are() -> None:
    frozen = nn.Conv2d(4, 4, 3, groups=4).requires_grad_(False)
    both = nn.Sequential(frozen, Halved(4, 4, 3, groups=4))
    keep_depthwise_precise(both)
    assert not any(isinstance(part, PreciseDepthwise) for part in both)
