import pytest
import torch
from torch import nn

from captioning.models import BACKBONES, CNNEncoder
from captioning.models.folding import folded


def with_statistics(network: nn.Module) -> None:
    """Give batch norm the mean, variance, weight and bias that a training would."""
    for part in network.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.running_mean.normal_(0, 0.1)
            part.running_var.uniform_(0.5, 2)
            nn.init.uniform_(part.weight, 0.5, 1.5)
            nn.init.normal_(part.bias)


class Floats(nn.Module):
    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images.float() / 128 - 1


ONE_OF_EACH_KIND = sorted(BACKBONES.keys() - {"resnet34", "resnet101", "resnet152", "vgg19"})


@pytest.mark.parametrize("backbone", ONE_OF_EACH_KIND)
def test_a_folded_encoder_gives_the_same_without_batch_norm(backbone: str) -> None:
    torch.manual_seed(0)
    encoder = CNNEncoder(backbone, weights=None).eval()
    with_statistics(encoder)
    images = torch.randint(0, 256, (2, 3, 64, 64), dtype=torch.uint8)
    fast = encoder.folded()
    with torch.inference_mode():
        annotations, same = encoder(images), fast(images)
    assert not any(isinstance(part, nn.BatchNorm2d) for part in fast.modules())
    torch.testing.assert_close(
        same, annotations, rtol=1e-4, atol=1e-5 * annotations.abs().max().item()
    )


def test_folding_leaves_the_network_as_it_was() -> None:
    network = nn.Sequential(Floats(), nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    with_statistics(network)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    folded(network)
    assert network.training
    torch.testing.assert_close(dict(network.state_dict()), before, rtol=0, atol=0)


def test_batch_norm_that_follows_no_convolution_stays() -> None:
    network = nn.Sequential(Floats(), nn.Conv2d(3, 4, 3), nn.ReLU(), nn.BatchNorm2d(4))
    assert isinstance(folded(network)[3], nn.BatchNorm2d)


def test_batch_norm_that_holds_an_activation_leaves_it_behind() -> None:
    class WithReLU(nn.BatchNorm2d):
        def __init__(self, channels: int) -> None:
            super().__init__(channels)
            self.act = nn.ReLU()

        def forward(self, features: torch.Tensor) -> torch.Tensor:
            return self.act(super().forward(features))

    network = nn.Sequential(Floats(), nn.Conv2d(3, 4, 3), WithReLU(4)).eval()
    with_statistics(network)
    fast = folded(network)
    assert not any(isinstance(part, nn.BatchNorm2d) for part in fast.modules())
    image = torch.randint(256, (1, 3, 16, 16), dtype=torch.uint8)
    torch.testing.assert_close(fast(image), network(image))


def test_a_network_whose_layers_do_not_follow_in_order_stays_as_it_is() -> None:
    class Backwards(nn.Sequential):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            floats, convolution, norm = self
            return convolution(norm(floats(images)))

    network = Backwards(Floats(), nn.Conv2d(3, 3, 3), nn.BatchNorm2d(3)).eval()
    with_statistics(network)
    image = torch.randint(256, (1, 3, 16, 16), dtype=torch.uint8)
    torch.testing.assert_close(folded(network)(image), network(image), rtol=0, atol=0)
