"""Backbones by name, with their pretrained weights.

The last feature map of a backbone holds the annotation vectors.
"""

import zipfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import torch
from torch import Tensor, nn

from captioning.errors import InputError
from captioning.integrity import check_archive, check_finite
from captioning.models.image_classes import Classes, classes_of
from captioning.models.small_networks import PlainCNN, SmallCNN
from captioning.untrusted import opened

DEFAULT = "DEFAULT"
"""Stands for the weights that a backbone's library downloads."""

TIMM = "timm/"
"""Prefix of the names of timm's backbones; torchvision has some of the same names."""

SMALL_WEIGHTS = Path(__file__).with_name("small_cnn.pth")
"""Weights of the small backbone, trained by `scripts/demo_model` on drawn scenes."""


@dataclass(frozen=True)
class Backbone:
    """A network without its classifier.

    Attributes:
        width: D, channels of the feature map.
        stages: applied in order, they turn images (B, 3, H, W) into a feature map (B, D, rows,
            columns).
        mean: of each channel of the training images, in units of 0 to 1.
        std: standard deviation of each channel.
        image_size: side of the training images in pixels; None if any size will do.
        classes: the classes of its classifier, if that scores regions.
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
"""D of each backbone and its division into stages, by torchvision's name. ``small`` is for drawn
scenes, ``plain`` for small images of any kind."""


def _no_weights() -> Any:
    raise InputError("plain: has no pretrained weights; give a file, or null for a random start")


def backbone(name: str, weights: str | None) -> Backbone:
    """The backbone of a name, with its weights.

    Args:
        name: one of `BACKBONES`, or ``timm/`` and a name of timm's.
        weights: ``DEFAULT`` for those that the backbone's library downloads, or that come with
            this package for ``small``; the path of a state dict; or None for a random start.

    Raises:
        InputError: the name is unknown, or the weights are missing or do not fit.
    """
    if name.startswith(TIMM):
        from captioning.models.timm_backbones import timm_backbone

        return timm_backbone(name.removeprefix(TIMM), weights)
    if name in ("small", "plain"):
        own: nn.Module = SmallCNN() if name == "small" else PlainCNN()
        pretrained = _no_weights if name == "plain" else lambda: read_weights(SMALL_WEIGHTS)
        load_weights(own, name, weights, pretrained)
        width, divided = BACKBONES[name]
        return Backbone(width, divided(own), image_size=None)
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


def load_weights(
    model: nn.Module, name: str, weights: str | None, download: Callable[[], dict[str, Tensor]]
) -> None:
    """Load pretrained weights into a network.

    Args:
        model: the network.
        name: of the network, for messages.
        weights: ``DEFAULT``, the path of a file, or None to keep the random start.
        download: returns the state dict of ``DEFAULT``.

    Raises:
        InputError: the weights are missing or do not fit.
    """
    if weights is None:
        return
    state = download() if weights == DEFAULT else read_weights(Path(weights))
    try:
        model.load_state_dict(state)
    except (RuntimeError, AttributeError, KeyError, TypeError, ValueError):
        raise InputError(
            f"{weights}: not the state dict of a {name}; give the weights of that backbone"
        ) from None
    check_finite(Path(weights), model.state_dict())


def downloaded(address: str, download: Callable[[], Any]) -> Any:
    """The result of `download`.

    Args:
        address: for messages.
        download: uses the network.

    Raises:
        InputError: it fails for any reason.
    """
    try:
        return download()
    except Exception as error:  # of the network, of the disk, or of a file that is cut short
        if isinstance(error, HTTPError):
            error.close()  # it holds the connection
        reason = " ".join(str(error).split())
        raise InputError(
            f"{address}: cannot be downloaded ({reason}); "
            "fetch it elsewhere and give the file as the encoder's weights"
        ) from None


def read_weights(path: Path) -> Any:
    """The content of a file of weights.

    Raises:
        InputError: it cannot be read, or was not written by `torch.save`.
    """
    with opened(path) as file:
        if zipfile.is_zipfile(file):  # older versions of torch wrote no archives
            check_archive(path)
        file.seek(0)
        try:
            return torch.load(file, map_location="cpu", weights_only=True)
        except Exception:  # torch.load raises a dozen kinds for a file that holds no weights
            raise InputError(f"{path}: not a file of weights saved by torch.save") from None
