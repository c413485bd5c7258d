import copy
import pickle

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from captioning.device import multiplies_bfloat16_fast
from captioning.kernels.convolutions import folded, keep_depthwise_precise
from captioning.models import BACKBONES, CNNEncoder
from captioning.models.efficientnet_lite import efficientnet_lite

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
@pytest.mark.parametrize("backbone", [*ONE_OF_EACH_KIND, "timm/resnet18"])
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


@pytest.fixture
def lite() -> nn.Sequential:
    """The network of the photo model's family, with statistics: its values would vanish else."""
    torch.manual_seed(0)
    network = nn.Sequential(*efficientnet_lite("tf_efficientnet_lite0")).eval()
    with_statistics(network)
    return network.to(memory_format=torch.channels_last)


@torch.no_grad()
def test_folded_blocks_take_images_of_any_size(lite: nn.Sequential) -> None:
    fast = folded(lite)
    assert not norms(fast)
    for shape in ((2, 3, 64, 64), (1, 3, 64, 64), (3, 3, 75, 90)):
        images = torch.randn(shape).contiguous(memory_format=torch.channels_last)
        expected = lite(images)
        assert_close(fast(images), expected, rtol=1e-4, atol=1e-5 * expected.abs().max().item())


def test_folded_convolutions_can_be_copied_and_differentiated() -> None:
    network = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
    with_statistics(network.eval())
    fast, image = folded(network), torch.randn(1, 3, 16, 16)
    with torch.no_grad():
        expected = fast(image)
        for same in (copy.deepcopy(fast), pickle.loads(pickle.dumps(fast))):
            assert_close(same(image), expected)
        assert fast.double()(image.double()).dtype == torch.float64
        assert_close(fast.float()(image), expected)
    image.requires_grad_()
    found, wanted = (torch.autograd.grad(net(image).sum(), image) for net in (fast, network))
    assert_close(found, wanted)


@torch.no_grad()
@pytest.mark.skipif(not multiplies_bfloat16_fast(), reason="bfloat16 is slow on this processor")
def test_folded_convolutions_follow_autocast(lite: nn.Sequential) -> None:
    images = torch.randn(2, 3, 64, 64).contiguous(memory_format=torch.channels_last)
    expected = lite(images)
    with torch.autocast("cpu", torch.bfloat16):
        found = folded(lite)(images)
    assert found.dtype == torch.bfloat16
    assert (found - expected).norm() < 0.1 * expected.norm()


def test_depthwise_convolutions_alone_stay_precise_under_autocast() -> None:
    depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8)
    plain = nn.Sequential(nn.Conv2d(3, 8, 1), depthwise, nn.Conv2d(8, 2, 1))
    images = torch.rand(2, 3, 6, 6)
    fast = copy.deepcopy(plain)
    keep_depthwise_precise(fast)
    assert fast.state_dict().keys() == plain.state_dict().keys()
    for each in (plain, fast):
        each(images).square().sum().backward()
    for ours, theirs in zip(fast.parameters(), plain.parameters(), strict=True):
        assert_close(ours.grad, theirs.grad, rtol=0, atol=0)
    with torch.autocast("cpu", torch.bfloat16):
        outputs = [images := layer(images) for layer in fast]
    assert [x.dtype for x in outputs] == [torch.bfloat16, torch.float32, torch.bfloat16]


def test_frozen_layers_and_subclasses_stay_as_they_are() -> None:
    frozen = nn.Conv2d(4, 4, 3, groups=4).requires_grad_(False)
    both = nn.Sequential(frozen, Halved(4, 4, 3, groups=4))
    keep_depthwise_precise(both)
    assert not any("forward" in vars(part) for part in both)
