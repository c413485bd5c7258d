"""Batch norm that does not change any more, taken into the convolution before it."""

import copy
from itertools import pairwise
from typing import TypeVar

import torch
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

Network = TypeVar("Network", bound=nn.Module)

SIDE = 64
"""Side in pixels of the image that the two networks are compared with."""

TOLERANCE = 1e-3
"""How far the folded network may be off, over the largest number that it gives."""


def folded(network: Network) -> Network:
    """A copy for inference alone that gives the same, up to rounding, in less time.

    In evaluation mode batch norm multiplies each channel by a number and adds another, which the
    weights of a convolution can do as well; MobileNetV2 takes half the time then on a CPU. A batch
    norm that holds its activation (timm's ``BatchNormAct2d``) leaves the activation behind. Where
    modules do not follow each other in the order of their names, folding would change the result:
    so both networks see an image, and the copy stays unfolded if they differ.

    Args:
        network: takes uint8 images (B, 3, H, W).
    """
    plain = copy.deepcopy(network).eval()
    fast = copy.deepcopy(plain)
    for parent in list(fast.modules()):
        for (name, part), (next_name, next_part) in pairwise(list(parent.named_children())):
            if isinstance(part, nn.Conv2d) and isinstance(next_part, nn.BatchNorm2d):
                setattr(parent, name, fuse_conv_bn_eval(part, next_part))
                setattr(parent, next_name, nn.Sequential(*next_part.children()))
    return fast if _agree(plain, fast) else plain


@torch.no_grad()
def _agree(plain: nn.Module, fast: nn.Module) -> bool:
    generator = torch.Generator().manual_seed(0)
    side = getattr(plain, "image_size", None) or SIDE
    image = torch.randint(256, (1, 3, side, side), dtype=torch.uint8, generator=generator)
    image = image.to(next(plain.parameters()).device)
    expected, given = plain(image), fast(image)
    return bool((given - expected).abs().max() <= TOLERANCE * expected.abs().max())
