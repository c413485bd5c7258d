"""How a photo becomes the image that the encoder sees, in training and afterwards."""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import UInt8
from PIL.Image import Image, Resampling
from torch import Tensor

from captioning.configurable import Configurable

MARGIN = 7 / 8
"""While training with augmentation, the side of a random crop over the photo's short side."""


class View(NamedTuple):
    """What the model sees of a photo.

    Attributes:
        pixels: the image at the encoder's size.
        crop: left, top, width and height, in pixels of the photo, of the part that is seen.
        size: width and height of the photo in pixels.
    """

    pixels: UInt8[Tensor, "3 S S"]
    crop: tuple[float, float, float, float]
    size: tuple[int, int]


class Preprocessing(Configurable):
    """A square crop of a photo at its own aspect ratio.

    Args:
        size: S, side of the square in pixels.
    """

    def __init__(self, size: int = 224) -> None:
        self.size = size

    def __call__(self, photo: Image) -> View:
        """The largest square in the middle of the photo."""
        side = float(min(photo.size))
        left, top = (photo.width - side) / 2, (photo.height - side) / 2
        return self._view(photo, left, top, side)

    def augmented(self, photo: Image, generator: torch.Generator, flip: bool) -> View:
        """A random crop, with `flip` mirrored half of the time; for training."""
        side = min(photo.size) * MARGIN
        right, down, mirror = torch.rand(3, generator=generator).tolist()
        left, top = right * (photo.width - side), down * (photo.height - side)
        view = self._view(photo, left, top, side)
        if flip and mirror < 0.5:
            view = view._replace(pixels=view.pixels.flip(-1))
        return view

    def _view(self, photo: Image, left: float, top: float, side: float) -> View:
        box = (left, top, left + side, top + side)
        small = photo.resize((self.size, self.size), Resampling.BILINEAR, box=box, reducing_gap=3.0)
        pixels = torch.from_numpy(np.array(small)).permute(2, 0, 1).contiguous()
        return View(pixels, (left, top, side, side), photo.size)
