"""Patterns on objects and backgrounds of hard scenes, the same at every picture size."""

import math

import numpy as np
from jaxtyping import Float
from PIL import Image

from captioning.shapes.scene import Texture

PATTERNS = ("stripes", "checks", "dots", "bricks", "speckles")
EDGE = 4.0  # how fast a pattern goes from 0 to 1, per unit of its wave
MORTAR = 0.18  # between bricks, as a share of their height


def pattern_share(
    pattern: str,
    across: Float[np.ndarray, "1 W"],
    down: Float[np.ndarray, "H 1"],
    angle: float,
    waves: float,
    seed: int,
) -> Float[np.ndarray, "H W"]:
    """How much of the pattern is at each place, 0 to 1.

    Args:
        pattern: one of `PATTERNS`.
        across: each column's place from the picture's middle, in picture sides.
        down: each row's.
        angle: of the pattern's direction, in radians.
        waves: of it along a picture's side.
        seed: of its noise.
    """
    along = (across * math.cos(angle) + down * math.sin(angle)) * waves
    beside = (down * math.cos(angle) - across * math.sin(angle)) * waves
    match pattern:
        case "stripes":
            found = _edged(np.sin(2 * math.pi * along))
        case "checks":
            found = _edged(np.sin(math.pi * along) * np.sin(math.pi * beside) * 2)
        case "dots":
            found = _edged(1 - 3 * np.hypot(along % 1 - 0.5, beside % 1 - 0.5))
        case "bricks":
            shifted = beside / 2 + 0.5 * (np.floor(along) % 2)
            off_joint = np.minimum(0.5 - abs(along % 1 - 0.5), 1 - 2 * abs(shifted % 1 - 0.5))
            found = _edged(2 * (MORTAR - off_joint))
        case "speckles":
            found = _speckles(across, down, waves, seed)
        case _:
            raise ValueError(f"unknown pattern {pattern!r}")
    return found.astype(np.float32)


def textured(
    surface: Float[np.ndarray, "*rows 3"],
    texture: Texture,
    left: int,
    top: int,
    width: int,
    pixels: int,
) -> Float[np.ndarray, "h w 3"]:
    """The surface with its texture, each channel 0 to 1.

    Args:
        surface: colour of each row, (rows, 1, 3).
        texture: what is on it.
        left: the window's first column in the picture.
        top: its first row.
        width: its columns.
        pixels: side of the picture.
    """
    across = (np.arange(left, left + width, dtype=np.float32) + 0.5) / pixels - 0.5
    down = (np.arange(top, top + len(surface), dtype=np.float32) + 0.5) / pixels - 0.5
    share = pattern_share(
        texture.pattern, across[None], down[:, None], texture.angle, texture.waves, texture.seed
    )
    towards = 1.0 if texture.shade > 0 else 0.0
    return surface + (abs(texture.shade) * share)[..., None] * (np.float32(towards) - surface)


def _edged(wave: Float[np.ndarray, "H W"]) -> Float[np.ndarray, "H W"]:
    """Positive becomes one, negative zero, with an edge between."""
    return np.clip(0.5 + EDGE * wave, 0, 1)


def _speckles(
    across: Float[np.ndarray, "1 W"], down: Float[np.ndarray, "H 1"], waves: float, seed: int
) -> Float[np.ndarray, "H W"]:
    """Noise of two sizes, read off a picture of it at each place."""
    rng = np.random.default_rng(seed)
    total = np.zeros((down.shape[0], across.shape[1]))
    for octave in (1, 2):
        cells = max(2, round(2 * octave * waves))
        coarse = Image.fromarray(rng.integers(0, 256, (cells, cells), dtype=np.uint8))
        noise = np.asarray(coarse.resize((256, 256), Image.Resampling.BICUBIC), dtype=np.float32)
        rows = np.clip((down[:, 0] + 0.5) * 256, 0, 255).astype(int)
        columns = np.clip((across[0] + 0.5) * 256, 0, 255).astype(int)
        total += noise[rows[:, None], columns] / 255 / 2
    return np.clip(3 * (total - 0.5) + 0.5, 0, 1)
