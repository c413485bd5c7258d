"""What a backbone was trained to tell apart, before it became an encoder.

Shapes: D annotation width, C classes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

TOLERANCE = 1e-3
"""How far the classifier's scores of an image may be off, over the largest of them."""


@dataclass(frozen=True)
class Classes:
    """The classes that a backbone's own classifier tells apart, and how it scores them.

    Where a network takes the mean of its feature map and then a linear layer, the layer scores a
    single region as well, and the photo's score is the mean of its regions' (class activation
    mapping, Zhou et al. 2016). No checkpoint holds these numbers, since no caption needs them.

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
    """The classes of a network that takes the mean of its feature map and then a linear layer.

    Whether it does is not written anywhere, so both ways score an image.

    Args:
        model: gives an image's scores.
        feature_map: gives its feature map.
        names: of each class.
        side: of the image in pixels.

    Returns:
        None if the two disagree: a network with more layers between has no score of a region.
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
