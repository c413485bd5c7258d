"""Backbones by name, with their pretrained weights.

The last feature map of a backbone holds the annotation vectors.

Shapes: D annotation width, C classes.
"""

import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import torch
from jaxtyping import Float
from torch import Tensor, nn

from captioning.errors import InputError
from captioning.integrity import check_archive, check_finite
from captioning.models.small_networks import PlainCNN, SmallCNN
from captioning.untrusted import opened

DEFAULT = "DEFAULT"
"""Stands for the weights that a backbone's library downloads."""

TIMM = "timm/"
"""Prefix of the names of timm's backbones; torchvision has some of the same names."""

SMALL_WEIGHTS = Path(__file__).with_name("small_cnn.pth")
"""Weights of the small backbone, trained by `scripts/shapes_model` on drawn scenes."""


@dataclass(frozen=True)
class Classes:
    """The classes of a backbone's own classifier, by their names in lower case.

    If a network applies a linear layer to the mean of its feature map, that layer scores single
    regions as well, and the photo's score is the mean of theirs (class activation mapping, Zhou et
    al. 2016). Checkpoints do not contain these numbers, since captioning does not need them.
    """

    names: Sequence[Sequence[str]]
    weight: Float[Tensor, "C D"]
    bias: Float[Tensor, " C"]


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


BACKBONES = {
    "small": 196,
    "plain": 128,
    "resnet18": 512,
    "resnet34": 512,
    "resnet50": 2048,
    "resnet101": 2048,
    "resnet152": 2048,
    "vgg16": 512,
    "vgg19": 512,
    "mobilenet_v2": 1280,
    "mobilenet_v3_large": 960,
    "efficientnet_v2_s": 1280,
    "convnext_tiny": 768,
}
"""D of each backbone by torchvision's name.

``small`` is for drawn scenes, ``plain`` for small images of any kind.
"""


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
    if name not in BACKBONES:
        raise InputError(
            f"unknown backbone {name!r}; choose from {', '.join(BACKBONES)}, or give {TIMM}NAME "
            "for one of timm's"
        )
    if name in ("small", "plain"):
        own = SmallCNN() if name == "small" else PlainCNN()
        load_weights(own, name, weights, lambda: _own_weights(name))
        return Backbone(BACKBONES[name], list(own.features), image_size=None)
    from torchvision import models  # takes a second to import

    model = models.get_model(name, weights=None)
    if weights is None:
        return Backbone(BACKBONES[name], _torchvision_stages(name, model))
    pretrained = models.get_model_weights(name).DEFAULT

    def download() -> Any:
        return downloaded(
            pretrained.url, lambda: pretrained.get_state_dict(progress=True, check_hash=True)
        )

    load_weights(model, name, weights, download)
    stages = _torchvision_stages(name, model)
    names = [(category.lower(),) for category in pretrained.meta["categories"]]
    classes = classes_of(model, nn.Sequential(*stages), names, side=64)
    return Backbone(BACKBONES[name], stages, classes=classes)


def _own_weights(name: str) -> Any:
    if name == "plain":
        raise InputError(
            "plain: has no pretrained weights; give a file, or null for a random start"
        )
    return read_weights(SMALL_WEIGHTS)


def _torchvision_stages(name: str, model: Any) -> list[nn.Module]:
    if name.startswith("resnet"):
        stem = nn.Sequential(model.conv1, model.bn1, model.relu, model.maxpool)
        return [stem, model.layer1, model.layer2, model.layer3, model.layer4]
    if not name.startswith("vgg"):
        return list(model.features)
    # Cut before each pooling. The last one is left out, as in the paper (14 x 14 of 224 pixels).
    stages: list[list[nn.Module]] = [[]]
    for layer in model.features[:-1]:
        if isinstance(layer, nn.MaxPool2d):
            stages.append([])
        stages[-1].append(layer)
    return [nn.Sequential(*stage) for stage in stages]


def load_weights(
    model: nn.Module, name: str, weights: str | None, download: Callable[[], dict[str, Tensor]]
) -> None:
    """Load pretrained weights into a network.

    Args:
        model: the network.
        name: for messages.
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
    """The result of `download`; InputError with the address if it fails for any reason."""
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
    """The content of a file; InputError if it was not written by `torch.save`."""
    with opened(path) as file:
        if zipfile.is_zipfile(file):  # older versions of torch wrote no archives
            check_archive(path)
        file.seek(0)
        try:
            return torch.load(file, map_location="cpu", weights_only=True)
        except Exception:  # torch.load raises a dozen kinds for a file that holds no weights
            raise InputError(f"{path}: not a file of weights saved by torch.save") from None


def classes_of(
    model: nn.Module, feature_map: nn.Module, names: Sequence[Sequence[str]], side: int
) -> Classes | None:
    """The classes of a network that applies a linear layer to the mean of its feature map.

    None if an image of `side` pixels gets different scores both ways.
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
            (layer(mean) - scores).abs().max() <= 1e-3 * scores.abs().max()
        )
    model.train(training)
    bias = torch.zeros(len(names)) if layer.bias is None else layer.bias.detach()
    return Classes(names, layer.weight.detach(), bias) if agree else None
