"""Convolutions of encoders, with batch norms, activations and sums of blocks folded into them.

Worth: 1.6 times the speed of the photo model's encoder, a few photos at a time. Depthwise
convolutions in single precision are worth 1.5 times the speed of training its last six stages in
bfloat16.

Shapes: B images, C and D channels.
"""

import copy
from functools import partial
from itertools import pairwise
from typing import Any, TypeVar, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.fusion import fuse_conv_bn_eval

from captioning.device import multiplies_bfloat16_fast
from captioning.kernels.linear import packed
from captioning.models.efficientnet_lite import Residual, SameConv2d

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

ACTIVATIONS: dict[type[nn.Module], tuple[str, list[float]]] = {
    nn.Identity: ("none", []),
    nn.ReLU: ("relu", []),
    nn.ReLU6: ("hardtanh", [0.0, 6.0]),
}
"""oneDNN's name of each activation that it computes within a convolution, and its bounds."""


def folded(network: Network) -> Network:
    """A copy for inference that gives the same output, up to rounding, in less time.

    In evaluation mode a batch norm multiplies each channel by one number and adds another, which
    the convolution before it can do as well. Convolutions are folded only where the order of calls
    is known (`IN_ORDER`); timm's activations stay. Where layers are only called in turn,
    activations and the sums of residual blocks are then folded, too (`FusedConvolution`).
    """
    fast = copy.deepcopy(network).eval()
    for parent in list(fast.modules()):
        if not _in_turn(parent) and type(parent).__module__ not in IN_ORDER:
            continue
        for (name, first), (next_name, second) in pairwise(list(parent.named_children())):
            if type(first).__name__ in CONVOLUTIONS and type(second).__name__ in NORMS:
                assert isinstance(first, nn.Conv2d)
                assert isinstance(second, nn.BatchNorm2d)
                setattr(parent, name, fuse_conv_bn_eval(first, second))
                setattr(parent, next_name, nn.Sequential(*second.children()))
    return cast("Network", _fused(fast)) if torch.backends.mkldnn.is_available() else fast


def _in_turn(parent: nn.Module) -> bool:
    """Whether a module only calls its layers, each on the output of the last."""
    return type(parent).forward is nn.Sequential.forward


def _fused(module: nn.Module) -> nn.Module:
    """The module with `FusedConvolution` for convolutions and what follows them."""
    for name, child in module.named_children():
        setattr(module, name, _fused(child))
    if not _in_turn(module) and type(module) is not Residual:
        return module
    layers: list[nn.Module] = []
    for layer in module.children():
        before: Any = layers[-1] if layers else None
        if isinstance(layer, nn.Identity) or (type(layer) is nn.Sequential and not len(layer)):
            continue
        if type(layer) in (nn.Conv2d, SameConv2d) and _is_zero_padded(layer):
            layers.append(FusedConvolution(cast("nn.Conv2d", layer)))
        elif (
            type(layer) in ACTIVATIONS
            and type(before) is FusedConvolution
            and type(before.activation) is nn.Identity
        ):
            before.activation = layer
        else:
            layers.append(layer)
    if _in_turn(module):
        return nn.Sequential(*layers)
    return (FusedResidual if type(layers[-1]) is FusedConvolution else Residual)(*layers)


def _is_zero_padded(layer: Any) -> bool:
    return layer.padding_mode == "zeros" and not isinstance(layer.padding, str)


class FusedConvolution(nn.Module):
    """Equals a convolution and the activation after it, computed at once, for inference on a CPU.

    oneDNN applies the activation, and adds the input of a residual block, to numbers that are still
    in the processor's cache, and reads packed weights. Its operators are private ones of PyTorch,
    which TorchInductor uses. Under autocast they compute in bfloat16. Elsewhere, and where
    gradients are needed, the plain layers run.

    Args:
        convolution: its padding is zeros, on both sides or as `SameConv2d` computes it.

    Attributes:
        activation: one of `ACTIVATIONS`.
    """

    def __init__(self, convolution: nn.Conv2d) -> None:
        super().__init__()
        self.convolution = convolution
        self.activation: nn.Module = nn.Identity()

    def forward(
        self,
        x: Float[Tensor, "B C rows columns"],
        added: Float[Tensor, "B D _ _"] | None = None,
    ) -> Float[Tensor, "B D _ _"]:
        """The convolution, the activation, and then the sum with `added` if it is given."""
        layer = self.convolution
        dtype = torch.bfloat16 if torch.is_autocast_enabled("cpu") else x.dtype
        is_fast = dtype == torch.bfloat16 and multiplies_bfloat16_fast()
        if (
            x.device.type != "cpu"
            or not x.numel()
            or not (dtype == torch.float32 or is_fast)
            or (torch.is_grad_enabled() and (x.requires_grad or layer.weight.requires_grad))
        ):
            out = self.activation(layer(x))
            return out if added is None else out + added
        padding = list(layer.padding)
        if isinstance(layer, SameConv2d):
            left, right, top, bottom = layer.missing(x)
            if (left, top) == (right, bottom):
                padding = [top, left]
            else:
                x = F.pad(x, (left, right, top, bottom))
        x = x.to(dtype)
        shape = (padding, list(layer.stride), list(layer.dilation), layer.groups)
        pack = torch.ops.mkldnn._reorder_convolution_weight
        weight = packed(layer, dtype, lambda weight: pack(weight, *shape, list(x.shape)))
        bias = None if layer.bias is None else layer.bias.detach().to(dtype)
        convolve = torch.ops.mkldnn._convolution_pointwise
        name, bounds = ACTIVATIONS[type(self.activation)]
        if added is None or name != "none":
            out = convolve(x, weight, bias, *shape, name, bounds, "")
            return out if added is None else out + added
        return convolve.binary(x, added.to(dtype), weight, bias, *shape, "add", 1.0, None, [], None)


class FusedResidual(nn.Sequential):
    """Equals a `Residual` whose last layer is a `FusedConvolution`, which adds the input."""

    def forward(self, x: Float[Tensor, "B C rows columns"]) -> Float[Tensor, "B C rows columns"]:
        y = x
        *layers, last = self
        for layer in layers:
            y = layer(y)
        return last(y, x)


def keep_depthwise_precise(network: nn.Module) -> None:
    """Compute trained depthwise convolutions on a CPU in single precision, also under autocast.

    In bfloat16 the gradient of such kernels takes a CPU four times as long, and they are a small
    part of the arithmetic: 25 products per number for a kernel of 5 x 5. Frozen layers and
    subclasses of `Conv2d` stay as they are.
    """
    for part in network.modules():
        if (
            type(part) is nn.Conv2d
            and part.groups == part.in_channels > 1
            and part.weight.requires_grad
            and part.weight.device.type == "cpu"
        ):
            part.forward = partial(_precisely, part)  # type: ignore[method-assign]


def _precisely(layer: nn.Conv2d, x: Float[Tensor, "B C rows columns"]) -> Float[Tensor, "B D _ _"]:
    with torch.autocast(x.device.type, enabled=False):
        return nn.Conv2d.forward(layer, x.to(layer.weight.dtype))
