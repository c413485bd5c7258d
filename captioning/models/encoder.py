"""Encoders: from an image to annotation vectors (Xu et al. 2015, section 3.1.1).

Shapes: B images, H x W pixels, L regions (rows x columns of a grid), D annotation width, P cells
and C channels of the last frozen stage.
"""

import math
from abc import abstractmethod
from functools import cached_property
from itertools import pairwise
from typing import ClassVar

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from captioning.configurable import Configurable
from captioning.errors import InputError
from captioning.models.backbones import backbone as backbone_of
from captioning.progress_bar import is_first_process, say

NOISE_IMAGES = 4
"""Number of images of noise by which an offset is measured."""


class Encoder(Configurable, nn.Module):
    """Turns uint8 images into annotation vectors, one for each region of a grid.

    A subclass sets `annotation_dim`, defines `forward` and `grid`, and normalises images itself. If
    its constructor has an argument ``weights``, loading a checkpoint passes None for it.

    Attributes:
        annotation_dim: D, width of an annotation vector.
        image_size: best side of the square images in pixels; None if any size works.
        offsets: cache of `offset` by the side of images; clear it when parameters change.
    """

    fixed: ClassVar = {"weights": None}  # a file has the parameters

    annotation_dim: int
    image_size: int | None = None

    @cached_property
    def offsets(self) -> dict[int, tuple[float, float]]:
        return {}

    @abstractmethod
    def forward(self, images: UInt8[Tensor, "B 3 H W"]) -> Float[Tensor, "B L D"]:
        """Annotation vectors, regions in reading order (row by row)."""

    @abstractmethod
    def grid(self, height: int, width: int) -> tuple[int, int]:
        """Rows and columns of the regions of an image of this size in pixels."""

    def offset(self, size: int) -> tuple[float, float]:
        """Pixels, down and right, by which receptive fields are shifted against their cells.

        For images of this side; measured (`measured_offset`) unless it is in the cache.
        """
        if size not in self.offsets:
            if is_first_process():
                say("measuring where the encoder looks, to place maps; takes 5 to 30 seconds, once")
            self.offsets[size] = measured_offset(self, size)
        return self.offsets[size]

    def cell_offset(self, size: int) -> tuple[float, float]:
        """`offset` in rows and columns of the grid."""
        (down, right), (rows, columns) = self.offset(size), self.grid(size, size)
        return down * rows / size, right * columns / size

    @property
    def frozen_part(self) -> "Encoder | FrozenStages | None":
        """The frozen part, whose output can be cached; it takes images and has a `config`.

        By default the whole encoder if no parameter is trained, otherwise None.
        """
        return None if any(p.requires_grad for p in self.parameters()) else self

    def trained_part(self, features: Float[Tensor, "B P C"]) -> Float[Tensor, "B L D"]:
        """Compute annotation vectors of square images from the output of `frozen_part`."""
        return features

    def train(self, mode: bool = True) -> "Encoder":
        """Switch to training mode; a frozen encoder stays in evaluation mode."""
        super().train(mode and self.frozen_part is not self)
        return self


class CNNEncoder(Encoder):
    """Annotation vectors from the last feature map of a network (section 3.1.1).

    Frozen stages stay in evaluation mode, or their batch-norm statistics would drift. Trained
    stages that start from pretrained weights keep their statistics too, since those of a few photos
    are noise.

    Args:
        backbone: a name in `BACKBONES`, or ``timm/`` and the name of a network of timm, such as
            ``timm/vit_small_patch16_224.augreg_in1k``, whose last feature map or patch tokens are
            used. EfficientNets of timm have a stage for each block; its other networks have one.
        weights: ``DEFAULT`` for the weights that torchvision or timm downloads, or that come with
            this package for ``small``; the name of a shipped model, such as ``photos``, or the
            ``.safetensors`` file of another, to start from its encoder; the path of a state dict;
            or None for a random start.
        grid: pool the feature map to grid x grid regions; None to keep it as it is.
        trainable_stages: number of the last stages to train; -1 for all.

    Raises:
        InputError: unknown backbone, more stages than it has, or weights that are missing or do not
            fit.
    """

    limits: ClassVar = {"grid": range(1, 65)}

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        backbone: str = "resnet101",
        weights: str | None = "DEFAULT",
        grid: int | None = None,
        trainable_stages: int = 0,
    ) -> None:
        super().__init__()
        network = backbone_of(backbone, weights)
        self.stages = nn.ModuleList(network.stages)
        self.annotation_dim = network.width
        self.image_size = network.image_size
        self.pool = nn.AdaptiveAvgPool2d(grid) if grid else nn.Identity()
        for name, channels in (("mean", network.mean), ("std", network.std)):
            # Never on the device meta, whose arithmetic imports PyTorch's compiler.
            self.register_buffer(name, torch.tensor(channels, device="cpu").view(3, 1, 1) * 255)
        count = len(self.stages)
        trained = count if trainable_stages == -1 else trainable_stages
        if not 0 <= trained <= count:
            raise InputError(f"trainable_stages: {backbone} has {count} stages, not {trained}")
        self.first_trained = count - trained
        self.stages[: self.first_trained].requires_grad_(False)
        self.keeps_statistics = weights is not None
        self._grids: dict[tuple[int, int], tuple[int, int]] = {}
        self.to(memory_format=torch.channels_last)
        self.train()

    @property
    def frozen_part(self) -> "CNNEncoder | FrozenStages | None":
        """The encoder if it is frozen, its frozen stages if it has some, otherwise None."""
        if self.first_trained == len(self.stages):
            return self
        return FrozenStages(self) if self.first_trained else None

    def keep_statistics(self) -> None:
        """Freeze the statistics of batch norms."""
        self.keeps_statistics = True
        self.train(self.training)

    def train(self, mode: bool = True) -> "CNNEncoder":
        """Switch the trained stages, except for batch norms that keep their statistics."""
        nn.Module.train(self, mode)
        self.stages[: self.first_trained].eval()
        if self.keeps_statistics:
            for module in self.modules():
                if isinstance(module, nn.BatchNorm2d):
                    module.train(False)
        return self

    def forward(self, images: UInt8[Tensor, "B 3 H W"]) -> Float[Tensor, "B L D"]:
        features = self.pool(feature_map(images, mean=self.mean, std=self.std, stages=self.stages))
        self._grids[images.shape[2], images.shape[3]] = features.shape[2], features.shape[3]
        return features.flatten(2).transpose(1, 2)  # section 3.1.1

    def grid(self, height: int, width: int) -> tuple[int, int]:
        """Rows and columns; the first call for a new size encodes a blank image."""
        if (height, width) not in self._grids:
            training = self.training
            self.eval()
            with torch.no_grad():
                self(torch.zeros(1, 3, height, width, dtype=torch.uint8, device=self.mean.device))
            self.train(training)
        return self._grids[height, width]

    def trained_part(self, features: Float[Tensor, "B P C"]) -> Float[Tensor, "B L D"]:
        if self.first_trained == len(self.stages):
            return features
        rows = math.isqrt(features.shape[1])  # as channels last, without a copy
        features = features.unflatten(1, (rows, rows)).permute(0, 3, 1, 2)
        for stage in self.stages[self.first_trained :]:
            features = stage(features)
        return self.pool(features).flatten(2).transpose(1, 2)


class FrozenStages(nn.Module):
    """The frozen stages of an encoder whose last stages are trained.

    Attributes:
        config: identifies the output, together with the parameters.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, encoder: CNNEncoder) -> None:
        super().__init__()
        self.stages = encoder.stages[: encoder.first_trained]
        self.register_buffer("mean", encoder.mean)
        self.register_buffer("std", encoder.std)
        self.config = {"backbone": encoder.config["backbone"], "stages": len(self.stages)}

    def forward(self, images: UInt8[Tensor, "B 3 H W"]) -> Float[Tensor, "B P C"]:
        features = feature_map(images, mean=self.mean, std=self.std, stages=self.stages)
        return features.flatten(2).transpose(1, 2)


def feature_map(
    images: UInt8[Tensor, "B 3 H W"], *, mean: Tensor, std: Tensor, stages: nn.ModuleList
) -> Float[Tensor, "B C rows columns"]:
    """Normalise images and apply stages."""
    features = ((images - mean) / std).contiguous(memory_format=torch.channels_last)
    for stage in stages:
        features = stage(features)
    return features


@torch.no_grad()
def measured_offset(encoder: Encoder, size: int) -> tuple[float, float]:
    """Measure the shift of receptive fields against their cells, in pixels down and right.

    Padding, strides and asymmetric kernels shift receptive fields. In images of noise, the noise of
    one strip of half a cell at a time is replaced. The centre of a region's receptive field is the
    mean position of the strips, weighted by the squared change of its annotation vector. The offset
    is the mean over regions, without those at the edges, whose receptive fields the image cuts.
    """
    training = encoder.training
    encoder.eval()
    parameter = next(encoder.parameters(), None)
    device = torch.device("cpu") if parameter is None else parameter.device
    noise = torch.Generator().manual_seed(0)
    shape = (2, NOISE_IMAGES, 3, size, size)
    images, replacements = torch.randint(256, shape, generator=noise, dtype=torch.uint8).to(device)
    vectors, grid, offset = encoder(images), encoder.grid(size, size), []
    for axis, cells in enumerate(grid):
        edges = torch.linspace(0, size, 2 * cells + 1).round().int().tolist()
        changes = []
        for start, end in pairwise(edges):
            changed, strip = images.clone(), (axis + 2, start, end - start)
            changed.narrow(*strip).copy_(replacements.narrow(*strip))
            changes.append((encoder(changed) - vectors).square().sum(dim=2).cpu())
        strip_centres = torch.tensor([(start + end) / 2 for start, end in pairwise(edges)])
        cell_centres = (torch.arange(cells) + 0.5) * size / cells
        distances = strip_centres[:, None] - cell_centres
        weights = torch.stack(changes).unflatten(2, grid).movedim(axis + 2, 3)
        total = weights.sum(dim=0).clamp_min(torch.finfo(weights.dtype).tiny)
        shifts = (distances[:, None, None] * weights).sum(dim=0) / total  # (images, across, along)
        across, along = _inner_cells(grid[1 - axis]), _inner_cells(cells)
        offset.append(round(shifts[:, across, along].mean().item(), 2))
    encoder.train(training)
    down, right = offset
    return down, right


def _inner_cells(count: int) -> slice:
    """The cells of an axis without those at its ends, or all if there are at most two."""
    return slice(1, -1) if count > 2 else slice(count)
