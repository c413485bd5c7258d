"""Encoders: what turns an image into annotation vectors (Xu et al. 2015, section 3.1.1).

Shapes: B images, H x W pixels, L regions (rows x columns of a grid), D annotation width, P cells
and C channels of the last frozen stage.
"""

import copy
import math
from abc import abstractmethod

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from captioning.configurable import Configurable
from captioning.errors import InputError
from captioning.models.backbones import backbone as backbone_of
from captioning.models.classes import Classes
from captioning.models.folding import folded
from captioning.numbers import Grid, TrainableStages


class Encoder(Configurable, nn.Module):
    """Turns uint8 images into annotation vectors, one for each region of a grid.

    A subclass sets `annotation_dim` and gives `forward` and `grid`. It normalises images itself.
    Its config must not name what training changes; an argument ``weights``, if it has one, is none
    when a checkpoint builds it again.

    Attributes:
        annotation_dim: D, width of an annotation vector.
        image_size: side in pixels of the square images that suit it best; none where any do.
        classes: what its weights were trained to tell apart; none where that is not known, or a
            checkpoint built it.
    """

    annotation_dim: int
    image_size: int | None = None
    classes: Classes | None = None

    @abstractmethod
    def forward(self, images: UInt8[Tensor, "B 3 H W"]) -> Float[Tensor, "B L D"]:
        """Annotation vectors, regions in reading order (row by row)."""

    @abstractmethod
    def grid(self, height: int, width: int) -> tuple[int, int]:
        """Rows and columns of the regions of an image of so many pixels."""

    @property
    def constant(self) -> "Encoder | FrozenStages | None":
        """The part that training never changes, whose output may be kept; none if all is trained.

        It takes images, has a `config` and can be `folded`. By default all or nothing: the encoder
        itself where none of its parameters is trained.
        """
        return None if any(p.requires_grad for p in self.parameters()) else self

    def completed(self, features: Float[Tensor, "B P C"]) -> Float[Tensor, "B L D"]:
        """Annotation vectors from what `constant` gave for square images."""
        return features

    def folded(self) -> "Encoder":
        """A copy for inference alone that gives the same annotation vectors in less time."""
        return copy.deepcopy(self).eval()

    def train(self, mode: bool = True) -> "Encoder":
        """Switch to training mode, unless nothing is trained: what is frozen stays as it is."""
        super().train(mode and self.constant is not self)
        return self


class CNNEncoder(Encoder):
    """Annotation vectors from the last feature map of a network.

    What is frozen is truly frozen: it gets no gradients and stays in evaluation mode, or its
    batch-norm statistics would drift. Trained stages that start from weights keep the statistics of
    these weights too: statistics of a few photos are noise.

    Args:
        backbone: a name in `BACKBONES`, or ``timm/`` and the name of one of timm's networks, whose
            feature map, or patch tokens, are the last ones. EfficientNets of timm have a stage for
            each block, other networks of timm are a single stage.
        weights: ``DEFAULT`` for the weights that torchvision or timm downloads, or that come with
            this package for ``small``; the path of a file with the backbone's state dict; or none
            for a random start.
        grid: pool the feature map to grid x grid regions; none keeps it as it is.
        trainable_stages: how many of the last stages are trained; -1 for all.

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
        network = backbone_of(backbone, weights)
        self.stages = nn.ModuleList(network.stages)
        self.image_size = network.image_size
        self.classes = network.classes
        if trainable_stages > len(self.stages):
            raise InputError(
                f"trainable_stages: {backbone} has {len(self.stages)} stages; give a number from 0 "
                f"to {len(self.stages)}, or -1 for all, not {trainable_stages}"
            )
        self.pool = nn.AdaptiveAvgPool2d(grid) if grid else nn.Identity()
        for name, of_images in (("mean", network.mean), ("std", network.std)):
            # On the CPU even where the model is built without numbers: this takes no time.
            shares = torch.tensor(of_images, device="cpu").view(3, 1, 1)
            self.register_buffer(name, shares * 255)
        trained = len(self.stages) if trainable_stages < 0 else trainable_stages
        self.first_trained = max(len(self.stages) - trained, 0)
        self.frozen.requires_grad_(False)
        self.keeps_statistics = weights is not None
        self._grids: dict[tuple[int, int], tuple[int, int]] = {}
        self.to(memory_format=torch.channels_last)
        self.train()
        self.annotation_dim = network.width

    @property
    def frozen(self) -> nn.ModuleList:
        """The stages that are never trained."""
        return self.stages[: self.first_trained]

    @property
    def is_frozen(self) -> bool:
        """Whether no stage is trained."""
        return self.first_trained == len(self.stages)

    @property
    def constant(self) -> "CNNEncoder | FrozenStages | None":
        """The encoder, its frozen stages where later ones are trained, or none if all are."""
        if self.is_frozen:
            return self
        return FrozenStages(self) if self.first_trained else None

    def train(self, mode: bool = True) -> "CNNEncoder":
        """Switch the trained stages only."""
        nn.Module.train(self, mode)
        self.frozen.train(False)
        if self.keeps_statistics:
            for module in self.modules():
                if isinstance(module, nn.BatchNorm2d):
                    module.train(False)
        return self

    def forward(self, images: UInt8[Tensor, "B 3 H W"]) -> Float[Tensor, "B L D"]:
        """Annotation vectors, regions in reading order (row by row)."""
        features = self._finished(_begun(images, self.mean, self.std, self.frozen))
        height, width = images.shape[2:]
        self._grids[height, width] = features.shape[2], features.shape[3]
        return features.flatten(2).transpose(1, 2)

    def grid(self, height: int, width: int) -> tuple[int, int]:
        """Rows and columns of the feature map of an image of so many pixels.

        Known without any work once an image of this size has been encoded.
        """
        if (height, width) not in self._grids:
            other = copy.deepcopy(self).eval()  # whose statistics a black image may change
            with torch.no_grad():
                other(torch.zeros(1, 3, height, width, dtype=torch.uint8, device=self.mean.device))
            self._grids |= other._grids
        return self._grids[height, width]

    def completed(self, features: Float[Tensor, "B P C"]) -> Float[Tensor, "B L D"]:
        """Annotation vectors from what `constant` gave for square images."""
        if self.is_frozen:
            return features
        rows = math.isqrt(features.shape[1])  # as channels last, without a copy
        features = features.unflatten(1, (rows, rows)).permute(0, 3, 1, 2)
        return self._finished(features).flatten(2).transpose(1, 2)

    def _finished(self, features: Tensor) -> Float[Tensor, "B D rows2 columns2"]:
        for stage in self.stages[self.first_trained :]:
            features = stage(features)
        pooled: Tensor = self.pool(features)
        return pooled

    def folded(self) -> "CNNEncoder":
        """A copy for inference alone that gives the same annotation vectors in less time."""
        return folded(self)


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


def _begun(
    images: UInt8[Tensor, "B 3 H W"], mean: Tensor, std: Tensor, stages: nn.ModuleList
) -> Float[Tensor, "B C rows columns"]:
    """What frozen stages make of images.

    Since frozen parameters ask for no gradient, none is recorded, unless somebody asks for that of
    a feature map (`captioning.maps`).
    """
    features = (images - mean) / std
    features = features.contiguous(memory_format=torch.channels_last)
    for stage in stages:
        features = stage(features)
    return features
