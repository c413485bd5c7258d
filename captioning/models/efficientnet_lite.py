"""EfficientNet-Lite (Tan and Le 2019, without squeeze and excitation, with ReLU6), for loading.

timm has the same networks, with weights; importing it takes longer than captioning a photo. The
names of parameters are timm's.

Shapes: B images, C channels.
"""

import math
from collections import OrderedDict

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

NETWORKS = {
    "tf_efficientnet_lite0": (1.0, 1.0, 224),
    "tf_efficientnet_lite1": (1.0, 1.1, 240),
    "tf_efficientnet_lite2": (1.1, 1.2, 260),
    "tf_efficientnet_lite3": (1.2, 1.4, 300),
    "tf_efficientnet_lite4": (1.4, 1.8, 380),
}
"""Factors of width and depth, and side of training images in pixels, by timm's names."""

BASE_STAGES = [
    # repeats, kernel, stride, expansion, channels, before scaling
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
]

STEM_WIDTH, WIDTH = 32, 1280
"""Channels of the first and of the last convolution of every network."""


def efficientnet_lite(name: str) -> list[nn.Module]:
    """Build the stages of a network with random parameters: the stem, each block, and the head."""
    width, depth, _ = NETWORKS[name]
    stages: list[nn.Module] = [
        nn.Sequential(*_layers(3, STEM_WIDTH, kernel=3, stride=2), nn.ReLU6(inplace=True))
    ]
    channels = STEM_WIDTH
    for number, (repeats, kernel, stride, expansion, base) in enumerate(BASE_STAGES):
        out = int(base * width + 4) // 8 * 8  # the nearest multiple of 8
        out += 8 * (out < 0.9 * base * width)
        if 0 < number < len(BASE_STAGES) - 1:  # repeats of the first and the last are not scaled
            repeats = math.ceil(repeats * depth)
        for repeat in range(repeats):
            block_stride = stride if repeat == 0 else 1
            stages.append(
                _block(channels, out, kernel=kernel, stride=block_stride, expansion=expansion)
            )
            channels = out
    return [*stages, nn.Sequential(*_layers(channels, WIDTH, kernel=1), nn.ReLU6(inplace=True))]


class SameConv2d(nn.Conv2d):
    """Pads as TensorFlow's "same": output sides are input sides over the stride, rounded up."""

    def forward(self, x: Float[Tensor, "B C rows columns"]) -> Float[Tensor, "B D _ _"]:
        (kernel, _), (stride, _) = self.kernel_size, self.stride
        padding: list[int] = []  # columns on the left and right, and rows above and below
        for size in (x.shape[3], x.shape[2]):
            missing = max((math.ceil(size / stride) - 1) * stride + kernel - size, 0)
            padding += [missing // 2, missing - missing // 2]
        return super().forward(F.pad(x, padding))


class Residual(nn.Sequential):
    """Adds the input to the output of layers."""

    def forward(self, x: Float[Tensor, "B C rows columns"]) -> Float[Tensor, "B C rows columns"]:
        return super().forward(x) + x


def _block(channels: int, out: int, *, kernel: int, stride: int, expansion: int) -> nn.Sequential:
    """An inverted residual block (Sandler et al. 2018); expansion 1 leaves out its first layer."""
    inner = channels * expansion
    layers: list[nn.Module] = []
    names = ["conv_dw", "bn1", "act2", "conv_pw", "bn2"]
    if expansion > 1:
        layers = [*_layers(channels, inner, kernel=1), nn.ReLU6(inplace=True)]
        names = ["conv_pw", "bn1", "act1", "conv_dw", "bn2", "act2", "conv_pwl", "bn3"]
    layers += [
        *_layers(inner, inner, kernel=kernel, stride=stride, groups=inner),
        nn.ReLU6(inplace=True),
    ]
    layers += _layers(inner, out, kernel=1)
    block_class = Residual if stride == 1 and channels == out else nn.Sequential
    return block_class(OrderedDict(zip(names, layers, strict=True)))


def _layers(
    channels: int, out: int, *, kernel: int, stride: int = 1, groups: int = 1
) -> tuple[nn.Conv2d, nn.BatchNorm2d]:
    """A convolution and its batch norm."""
    layer_class, padding = (nn.Conv2d, kernel // 2) if stride == 1 else (SameConv2d, 0)
    convolution = layer_class(channels, out, kernel, stride, padding, groups=groups, bias=False)
    nn.init.normal_(convolution.weight, std=(2 * groups / (out * kernel**2)) ** 0.5)
    return convolution, nn.BatchNorm2d(out, eps=1e-3)
