"""Depthwise convolutions of a training in bfloat16 on a CPU.

Shapes: B images, C channels.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn


class PreciseDepthwise(nn.Conv2d):
    """Equals the `Conv2d` with a kernel for each channel, in single precision under autocast.

    The gradient of such kernels takes a CPU four times as long in bfloat16, while the products
    are few: 25 for each number that a kernel of 5 x 5 gives.
    """

    def forward(self, x: Float[Tensor, "B C rows columns"]) -> Float[Tensor, "B C _ _"]:
        """The convolution of each channel, outside autocast."""
        with torch.autocast(x.device.type, enabled=False):
            return super().forward(x.to(self.weight.dtype))


def keep_depthwise_precise(network: nn.Module) -> None:
    """Let the depthwise convolutions that are trained on a CPU be computed by the kernel.

    Subclasses of `Conv2d` and frozen layers stay as they are.

    Args:
        network: changed in place; its parameters and their names stay the same.
    """
    for part in network.modules():
        if (
            type(part) is nn.Conv2d
            and part.groups == part.in_channels > 1
            and part.weight.requires_grad
            and part.weight.device.type == "cpu"
        ):
            part.__class__ = PreciseDepthwise
