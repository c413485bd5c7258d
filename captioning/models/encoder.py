"""The encoder: a CNN whose feature map gives one annotation vector per region of the image.

Shapes: B images, H x W pixels, L regions (rows x columns of the feature map), D annotation width, P
cells and C channels of the last frozen stage.
"""

import math
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from captioning.configurable import Configurable
from captioning.errors import InputError
from captioning.integrity import check_archive, check_finite
from captioning.models.backbones import SmallCNN
from captioning.models.folding import folded
from captioning.numbers import Grid, TrainableStages
from captioning.startup import torchvision_models
from captioning.untrusted import opened

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


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


BACKBONES: dict[str, Callable[[Any], list[nn.Module]]] = {
    "small": _feature_stages,
    "resnet18": _resnet_stages,
    "resnet34": _resnet_stages,
    "resnet50": _resnet_stages,
    "resnet101": _resnet_stages,
    "resnet152": _resnet_stages,
    "vgg16": _vgg_stages,
    "vgg19": _vgg_stages,
    "mobilenet_v2": _feature_stages,
    "mobilenet_v3_large": _feature_stages,
    "efficientnet_v2_s": _feature_stages,
    "convnext_tiny": _feature_stages,
}
"""How each backbone's convolutional part divides into stages, by torchvision's name."""


class CNNEncoder(Configurable, nn.Module):
    """Annotation vectors from the last feature map of a convolutional network.

    Takes uint8 images and normalises them itself. What is frozen is truly frozen: it gets no
    gradients and stays in evaluation mode, or its batch-norm statistics would drift. Trained stages
    that start from weights keep the statistics of these too: those of a few photos are noise.

    Args:
        backbone: a name in `BACKBONES`; ``small`` is this project's own for the shapes.
        weights: ``DEFAULT`` for the weights that torchvision downloads, the path of a file with
            the backbone's state dict, or none for a random start.
        grid: pool the feature map to grid x grid regions; none keeps it as it is.
        trainable_stages: how many of the last stages are trained; -1 for all.

    Attributes:
        annotation_dim: D.

    Raises:
        InputError: unknown backbone, more stages than it has, or weights that cannot be had or do
            not fit.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        backbone: str = "resnet101",
        weights: str | None = "DEFAULT",
        grid: Grid | None = None,
        trainable_stages: TrainableStages = 0,
    ) -> None:
        super().__init__()
        if backbone not in BACKBONES:
            raise InputError(f"unknown backbone {backbone!r}; choose from {', '.join(BACKBONES)}")
        model = _model(backbone, weights)
        self.stages = nn.ModuleList(BACKBONES[backbone](model))
        if trainable_stages > len(self.stages):
            raise InputError(
                f"trainable_stages: {backbone} has {len(self.stages)} stages; give a number from 0 "
                f"to {len(self.stages)}, or -1 for all, not {trainable_stages}"
            )
        self.pool = nn.AdaptiveAvgPool2d(grid) if grid else nn.Identity()
        self.register_buffer("mean", torch.tensor(IMAGENET_MEAN).view(3, 1, 1) * 255)
        self.register_buffer("std", torch.tensor(IMAGENET_STD).view(3, 1, 1) * 255)
        trained = len(self.stages) if trainable_stages < 0 else trainable_stages
        self.first_trained = max(len(self.stages) - trained, 0)
        self.frozen.requires_grad_(False)
        self.keeps_statistics = weights is not None
        self.to(memory_format=torch.channels_last)
        self.annotation_dim = self._annotation_dim()

    @property
    def frozen(self) -> nn.ModuleList:
        """The stages that are never trained."""
        return self.stages[: self.first_trained]

    @property
    def is_frozen(self) -> bool:
        """True where no stage is trained, so that annotation vectors may be computed once."""
        return self.first_trained == len(self.stages)

    @property
    def has_frozen(self) -> bool:
        """False where all stages are trained, so that nothing may be computed once."""
        return self.first_trained > 0

    @property
    def constant(self) -> "CNNEncoder | FrozenStages":
        """What of the encoder never changes in training, so that its output may be kept."""
        return self if self.is_frozen else FrozenStages(self)

    def train(self, mode: bool = True) -> "CNNEncoder":
        """Switch the trained stages only."""
        super().train(mode)
        self.frozen.train(False)
        if self.keeps_statistics:
            for module in self.modules():
                if isinstance(module, nn.BatchNorm2d):
                    module.train(False)
        return self

    def forward(self, images: UInt8[Tensor, "B 3 H W"]) -> Float[Tensor, "B L D"]:
        """Annotation vectors, regions in reading order (row by row)."""
        return self._finished(_begun(images, self.mean, self.std, self.frozen))

    def completed(self, features: Float[Tensor, "B P C"]) -> Float[Tensor, "B L D"]:
        """Annotation vectors from what `constant` gave for square images."""
        if self.is_frozen:
            return features
        rows = math.isqrt(features.shape[1])  # as channels last, without a copy
        return self._finished(features.unflatten(1, (rows, rows)).permute(0, 3, 1, 2))

    def _finished(self, features: Float[Tensor, "B C rows columns"]) -> Float[Tensor, "B L D"]:
        for stage in self.stages[self.first_trained :]:
            features = stage(features)
        features = self.pool(features)  # (B, D, rows, columns)
        return features.flatten(2).transpose(1, 2)

    def folded(self) -> "CNNEncoder":
        """A copy that gives the same annotation vectors in less time and cannot be trained."""
        return folded(self)

    @torch.no_grad()
    def _annotation_dim(self) -> int:
        self.eval()
        width = self(torch.zeros(1, 3, 64, 64, dtype=torch.uint8)).shape[-1]
        self.train()
        return width


class FrozenStages(nn.Module):
    """The frozen stages of an encoder whose last ones are trained.

    Args:
        encoder: has a frozen stage.

    Attributes:
        config: what decides the output, parameters apart.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, encoder: CNNEncoder) -> None:
        super().__init__()
        self.stages = encoder.frozen
        self.register_buffer("mean", encoder.mean)
        self.register_buffer("std", encoder.std)
        self.config = {"backbone": encoder.config["backbone"], "stages": len(self.stages)}

    def forward(self, images: UInt8[Tensor, "B 3 H W"]) -> Float[Tensor, "B P C"]:
        """The last frozen stage's feature map, cells in reading order."""
        features = _begun(images, self.mean, self.std, self.stages)
        return features.flatten(2).transpose(1, 2)

    def folded(self) -> "FrozenStages":
        """A copy that gives the same feature map in less time."""
        return folded(self)


@torch.no_grad()
def _begun(
    images: UInt8[Tensor, "B 3 H W"], mean: Tensor, std: Tensor, stages: nn.ModuleList
) -> Float[Tensor, "B C rows columns"]:
    """What frozen stages make of images."""
    features = (images - mean) / std
    features = features.contiguous(memory_format=torch.channels_last)
    for stage in stages:
        features = stage(features)
    return features


def _model(backbone: str, weights: str | None) -> nn.Module:
    """The whole network with its weights, still with the classifier that we leave out."""
    if backbone == "small":
        model: nn.Module = SmallCNN()
    else:
        model = torchvision_models().get_model(backbone, weights=None)
    if weights is None:
        return model
    if weights == "DEFAULT":
        if backbone == "small":
            raise InputError("the small backbone has no weights to download; set weights: null")
        state = _download(torchvision_models().get_model_weights(backbone).DEFAULT)
    else:
        state = _read(Path(weights))
    try:
        model.load_state_dict(state)  # of any version: early ones hold fewer statistics
    except (RuntimeError, AttributeError, KeyError, TypeError, ValueError):
        raise InputError(
            f"{weights}: not the state dict of a {backbone}; give the weights of that backbone"
        ) from None
    check_finite(Path(weights), model.state_dict())
    return model


def _download(weights: Any) -> dict[str, Tensor]:
    try:
        return weights.get_state_dict(progress=True, check_hash=True)
    except Exception as error:  # of the network, of the disk, or of a file that is cut short
        reason = " ".join(str(error).split())
        raise InputError(
            f"{weights.url}: cannot be downloaded ({reason}); "
            "fetch it elsewhere and give the file as the encoder's weights"
        ) from None


def _read(path: Path) -> Any:
    with opened(path) as file:
        if zipfile.is_zipfile(file):  # older versions of torch wrote no archives
            check_archive(path, whole=True)
        file.seek(0)
        try:
            return torch.load(file, map_location="cpu", weights_only=True)
        except Exception:  # torch.load raises a dozen kinds for a file that holds no weights
            raise InputError(f"{path}: not a file of weights saved by torch.save") from None
