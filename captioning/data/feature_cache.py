"""Features on disk: the frozen stages of an encoder run once per image, not once per epoch.

Shapes: L regions and D annotation width; if later stages are trained, L cells and D channels of the
last frozen stage.
"""

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float16
from torch import Tensor

from captioning.configurable import bare_name
from captioning.data.preprocessing import Preprocessing
from captioning.errors import InputError
from captioning.untrusted import read_json

ANNOTATIONS = "annotations.npy"
INDEX = "index.json"
REMEDY = "remove it or give another place for the features"


@runtime_checkable
class ConstantEncoder(Protocol):
    """The `constant` part of an encoder, which computes features."""

    @property
    def config(self) -> dict[str, Any]:
        """The settings that decide its output, besides its parameters."""

    def __call__(self, images: Tensor) -> Tensor:
        """Features (B, L, D) of uint8 images (B, 3, S, S)."""

    def folded(self) -> "ConstantEncoder":
        """A faster copy for inference with the same output."""

    def state_dict(self) -> dict[str, Tensor]:
        """Its parameters and buffers."""

    def parameters(self) -> Iterator[Tensor]:
        """Its parameters."""


class FeatureCache:
    """Half-precision features (L, D) by image, memory-mapped from a folder.

    Args:
        folder: where `captioning.data.extraction.feature_cache` wrote them.

    Raises:
        InputError: the folder holds something else.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        index = read_json(self.folder / INDEX)
        try:
            self.fingerprint: str = index["fingerprint"]
            sizes: dict[str, int] = dict(index["images"])
            self._annotations = np.load(self.folder / ANNOTATIONS, mmap_mode="r")
            whole = len(self._annotations) == len(sizes)
        except (KeyError, TypeError, ValueError, OSError, EOFError):
            whole = False
        if not whole:
            raise InputError(f"{self.folder}: holds no features, or not all of them; {REMEDY}")
        # The index holds paths relative to the folder, so they are valid in any working directory.
        root = place(self.folder)
        places = (os.path.normpath(f"{root}/{image}") for image in sizes)
        self._rows = {image: row for row, image in enumerate(places)}
        self._sizes = list(sizes.values())

    @property
    def cells(self) -> int:
        """How many of an image: L regions, or the cells of the last frozen stage."""
        return len(self._annotations[0]) if len(self._annotations) else 0

    def __contains__(self, image: Path) -> bool:
        return place(image) in self._rows

    def __getitem__(self, image: Path) -> Float16[Tensor, "L D"]:
        """The features of an image."""
        return torch.from_numpy(self._annotations[self._rows[place(image)]].copy())

    def is_stale(self, image: Path) -> bool:
        """Whether the photo is no longer the one that was encoded; see `has_changed`."""
        return has_changed(image, self._sizes[self._rows[place(image)]])

    def check(
        self, encoder: ConstantEncoder, preprocessing: Preprocessing, images: Sequence[Path]
    ) -> None:
        """Check that these are the features of `images` by this encoder.

        Args:
            encoder: the `constant` part of an Encoder.
            preprocessing: how a photo becomes an image.
            images: paths of photos; the folder may hold features of more.

        Raises:
            InputError: they are of another encoder, other weights, another preprocessing or other
                images, or photos have changed since.
        """
        if self.fingerprint != fingerprint(encoder, preprocessing):
            raise InputError(
                f"{self.folder}: made by another encoder, other weights or another image size; "
                f"{REMEDY}"
            )
        missing = [image for image in images if image not in self]
        if missing:
            raise InputError(
                f"{self.folder}: has no features of {missing[0]} and {len(missing) - 1} more; "
                f"{REMEDY}"
            )
        stale = [image for image in images if self.is_stale(image)]
        if stale:
            raise InputError(
                f"{self.folder}: {stale[0]} and {len(stale) - 1} more have changed since; {REMEDY}"
            )


def fingerprint(encoder: ConstantEncoder, preprocessing: Preprocessing) -> str:
    """A hash of the encoder's architecture and parameters and of the preprocessing."""
    digest = hashlib.sha256()
    digest.update(repr(sorted(_described(encoder.config | {"weights": None}).items())).encode())
    digest.update(repr(sorted(_described(preprocessing.config).items())).encode())
    for name, value in sorted(encoder.state_dict().items()):
        digest.update(name.encode())
        digest.update(value.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _described(config: dict[str, Any]) -> dict[str, Any]:
    """A config with the bare name of its class, so that a class that moves keeps its features."""
    return config | {"class": bare_name(config["class"])} if "class" in config else config


def place(path: Path) -> str:
    """The absolute path, as text."""
    return os.path.normpath(path.absolute())


def has_changed(image: Path, size: int) -> bool:
    """Whether a photo's file no longer has this size in bytes. A missing file has not changed."""
    try:
        return image.stat().st_size != size
    except FileNotFoundError:
        return False
