"""The classes that a backbone was trained to distinguish.

Shapes: D annotation width, C classes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

TOLERANCE = 1e-3
"""Largest difference between the two scores, relative to the largest score."""


@dataclass(frozen=True)
class Classes:
    """The classes of a backbone's own classifier and its linear layer.

    If a network applies a linear layer to the mean of its feature map, that layer scores single
    regions as well, and the photo's score is the mean of theirs (class activation mapping, Zhou et
    al. 2016). Checkpoints do not contain these numbers, since captioning does not need them.

    Attributes:
        names: of each class, in lower case.
        weight: of the linear layer.
        bias: of the linear layer.
    """

    names: Sequence[Sequence[str]]
    weight: Float[Tensor, "C D"]
    bias: Float[Tensor, " C"]


def classes_of(
    model: nn.Module, feature_map: nn.Module, names: Sequence[Sequence[str]], side: int
) -> Classes | None:
    """The classes of a network that applies a linear layer to the mean of its feature map.

    Whether it does is tested with an image that is scored both ways.

    Args:
        model: computes an image's scores.
        feature_map: computes its feature map.
        names: of each class.
        side: of the image in pixels.

    Returns:
        None if the two scores differ, because there are more layers in between.
    """
    layers = [m for m in model.modules() if isinstance(m, nn.Linear)]
    if not layers or layers[-1].out_features != len(names):
        return None
    layer, training = layers[-1], model.training
    model.eval()
    image = torch.rand(1, 3, side, side, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        scores, mean = model(image), feature_map(image).mean(dim=(2, 3))
        agree = mean.shape[1] == layer.in_features and bool(
            (layer(mean) - scores).abs().max() <= TOLERANCE * scores.abs().max()
        )
    model.train(training)
    bias = torch.zeros(len(names)) if layer.bias is None else layer.bias.detach()
    return Classes(names, layer.weight.detach(), bias) if agree else None
