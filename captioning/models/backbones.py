"""Backbones by name: networks whose last feature map gives the annotation vectors."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from captioning.errors import InputError
from captioning.models.classes import Classes, classes_of
from captioning.models.plain_cnn import PlainCNN
from captioning.models.small_cnn import SmallCNN
from captioning.models.weights import downloaded, load_weights, read_weights

TIMM = "timm/"
"""What the names of timm's backbones begin with here; torchvision has some of the same names."""

SMALL_WEIGHTS = Path(__file__).with_name("small_cnn.pth")
"""Those of the small backbone, which come with the package: `scripts/demo_model` trained them on
drawn scenes, by `configs/shapes.yaml`."""


@dataclass(frozen=True)
class Backbone:
    """A network without its classifier.

    Attributes:
        width: D, channels of the feature map.
        stages: one after the other they turn images (B, 3, H, W) into a feature map (B, D, rows,
            columns).
        mean: of each channel of the images that its weights were trained on, in units of 0 to 1.
        std: their standard deviation.
        image_size: side in pixels of the images that its weights were trained on; none where the
            network comes without weights.
        classes: what its weights tell apart, if they came with a classifier that scores regions.
    """

    width: int
    stages: list[nn.Module]
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)  # of ImageNet
    std: tuple[float, float, float] = (0.229, 0.224, 0.225)
    image_size: int | None = 224
    classes: Classes | None = None


def _resnet_stages(model: Any) -> list[nn.Module]:
    stem = nn.Sequential(model.conv1, model.bn1, model.relu, model.maxpool)
    return [stem, model.layer1, model.layer2, model.layer3, model.layer4]


def _vgg_stages(model: Any) -> list[nn.Module]:
    """Cut before each pooling; the last pooling is left out, as in the paper (14 x 14 of 224)."""
    stages: list[list[nn.Module]] = [[]]
    for layer in model.features[:-1]:
        if isinstance(layer, nn.MaxPool2d):
            stages.append([])
        stages[-1].append(layer)
    return [nn.Sequential(*stage) for stage in stages]


def _feature_stages(model: Any) -> list[nn.Module]:
    return list(model.features)


BACKBONES: dict[str, tuple[int, Callable[[Any], list[nn.Module]]]] = {
    "small": (196, _feature_stages),
    "plain": (128, _feature_stages),
    "resnet18": (512, _resnet_stages),
    "resnet34": (512, _resnet_stages),
    "resnet50": (2048, _resnet_stages),
    "resnet101": (2048, _resnet_stages),
    "resnet152": (2048, _resnet_stages),
    "vgg16": (512, _vgg_stages),
    "vgg19": (512, _vgg_stages),
    "mobilenet_v2": (1280, _feature_stages),
    "mobilenet_v3_large": (960, _feature_stages),
    "efficientnet_v2_s": (1280, _feature_stages),
    "convnext_tiny": (768, _feature_stages),
}
"""D of each backbone and how it divides into stages, by torchvision's name; ``small`` is for the
easy shapes, ``plain`` for small images of any kind."""


def _no_weights() -> Any:
    raise InputError("plain: comes without weights; give a file, or none (null) for a random start")


def backbone(name: str, weights: str | None) -> Backbone:
    """The backbone of a name, with its weights.

    Args:
        name: one of `BACKBONES`, or ``timm/`` and a name of timm's.
        weights: ``DEFAULT`` for those that the backbone's library downloads, or that come with
            this package for ``small``; the path of a state dict; or none for a random start.

    Raises:
        InputError: the name is unknown, or the weights cannot be had or do not fit.
    """
    if name.startswith(TIMM):
        from captioning.models.timm_backbones import timm_backbone

        return timm_backbone(name.removeprefix(TIMM), weights)
    if name == "small":
        model: nn.Module = SmallCNN()
        load_weights(model, name, weights, lambda: read_weights(SMALL_WEIGHTS))
        width, divided = BACKBONES[name]
        return Backbone(width, divided(model), image_size=None)
    if name == "plain":
        model = PlainCNN()
        load_weights(model, name, weights, _no_weights)
        width, divided = BACKBONES[name]
        return Backbone(width, divided(model), image_size=None)
    if name not in BACKBONES:
        raise InputError(
            f"unknown backbone {name!r}; choose from {', '.join(BACKBONES)}, or give {TIMM}NAME "
            "for one of timm's"
        )
    from torchvision import models  # takes a second to import

    def download() -> Any:
        default = models.get_model_weights(name).DEFAULT
        return downloaded(
            default.url, lambda: default.get_state_dict(progress=True, check_hash=True)
        )

    model = models.get_model(name, weights=None)
    load_weights(model, name, weights, download)
    width, divided = BACKBONES[name]
    stages = divided(model)
    network = Backbone(width, stages)
    if weights is None:
        return network
    names = [(n.lower(),) for n in models.get_model_weights(name).DEFAULT.meta["categories"]]
    return replace(network, classes=classes_of(model, nn.Sequential(*stages), names, side=64))
