"""JPEG files to read: those of a folder, or made-up ones of the size that COCO's have."""

from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import numpy as np
from PIL import Image

from captioning.data.photos import find_photos
from captioning.shapes import picture, random_scene

WIDTH, HEIGHT = 640, 480
QUALITY = 90
GRAIN = 6.0
"""Standard deviation of the noise: with it a file is about as large as a photo's."""


def written_photos(folder: Path, count: int) -> Sequence[Path]:
    """JPEG files of drawn scenes with the grain of a photo.

    Args:
        folder: an empty one.
        count: how many.
    """
    paths = [folder / f"{number:02d}.jpg" for number in range(count)]
    for number, path in enumerate(paths):
        rng = np.random.default_rng(number)
        drawn = picture(random_scene(rng), WIDTH)[:HEIGHT].astype(np.float64)
        grainy = drawn + rng.normal(0, GRAIN, drawn.shape)
        pixels = grainy.clip(0, 255).round().astype(np.uint8)
        Image.fromarray(pixels).save(path, quality=QUALITY)
    return paths


def found_photos(folder: Path, count: int) -> Sequence[Path]:
    """The first JPEG files below a folder.

    Args:
        folder: of photos.
        count: at most so many.

    Raises:
        InputError: there are no photos.
    """
    return list(islice(find_photos([folder]), count))
