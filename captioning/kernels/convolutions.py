"""Convolutions of encoders: batch norms folded into them, and depthwise ones under autocast.

Shapes: B images, C channels.
"""

import copy
from itertools import pairwise
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

Network = TypeVar("Network", bound=nn.Module)

IN_ORDER = (
    "captioning.models.efficientnet_lite",
    "torchvision.models.resnet",
    "timm.layers.conv_bn_act",
    "timm.models._efficientnet_blocks",
    "timm.models.resnet",
)
"""Modules whose blocks call a batch norm on the output of the convolution that is defined directly
before it. `torch.nn.Sequential` does so for every pair of neighbours."""

CONVOLUTIONS = ("Conv2d", "SameConv2d", "Conv2dSame")
NORMS = ("BatchNorm2d", "BatchNormAct2d")
"""PyTorch's classes, ours and timm's."""


def folded(network: Network) -> Network:
    """A copy for inference that gives the same output, up to rounding, in less time.

    In evaluation mode a batch norm multiplies each channel by one number and adds another, which
    the convolution before it can do as well. MobileNetV2 then takes 0.5 to 0.7 of the time on a
    CPU. Convolutions are folded only where the order of calls is known (`IN_ORDER`); timm's
    activations stay.
    """
    fast = copy.deepcopy(network).eval()
    for parent in list(fast.modules()):
        if type(parent).forward is not nn.Sequential.forward and (
            type(parent).__module__ not in IN_ORDER
        ):
            continue
        for (name, first), (next_name, second) in pairwise(list(parent.named_children())):
            if type(first).__name__ in CONVOLUTIONS and type(second).__name__ in NORMS:
                assert isinstance(first, nn.Conv2d)
                assert isinstance(second, nn.BatchNorm2d)
                setattr(parent, name, fuse_conv_bn_eval(first, second))
                setattr(parent, next_name, nn.Sequential(*second.children()))
    return fast


class PreciseDepthwise(nn.Conv2d):
    """Equals a `Conv2d` with one kernel per channel, in single precision under autocast.

    In bfloat16 the gradient of such kernels takes a CPU four times as long, and they are a small
    part of the arithmetic: 25 products per number for a kernel of 5 x 5.
    """

    def forward(self, x: Float[Tensor, "B C rows columns"]) -> Float[Tensor, "B C _ _"]:
        """The convolution of each channel, outside autocast."""
        with torch.autocast(x.device.type, enabled=False):
            return super().forward(x.to(self.weight.dtype))


def keep_depthwise_precise(network: nn.Module) -> None:
    """Turn the trained depthwise convolutions on a CPU into `PreciseDepthwise`, in place.

    Frozen layers and subclasses of `Conv2d` stay as they are.
    """
    for part in network.modules():
        if (
            type(part) is nn.Conv2d
            and part.groups == part.in_channels > 1
            and part.weight.requires_grad
            and part.weight.device.type == "cpu"
        ):
            part.__class__ = PreciseDepthwise
