"""Patterns of backgrounds and textures, the same at every picture size."""

import math

import numpy as np
from jaxtyping import Float
from PIL import Image

from captioning.shapes.scene import Background, Texture

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
    """The strength of the pattern at each place, 0 to 1.

    Args:
        pattern: one of `PATTERNS`.
        across: distance of each column from the picture's middle, in picture sides.
        down: the same of each row.
        angle: direction of the pattern, in radians.
        waves: repeats along a picture's side.
        seed: of its noise.
    """
    along = (across * math.cos(angle) + down * math.sin(angle)) * waves
    beside = (down * math.cos(angle) - across * math.sin(angle)) * waves
    if pattern == "stripes":
        found = _edged(np.sin(2 * math.pi * along))
    elif pattern == "checks":
        found = _edged(np.sin(math.pi * along) * np.sin(math.pi * beside) * 2)
    elif pattern == "dots":
        found = _edged(1 - 3 * np.hypot(along % 1 - 0.5, beside % 1 - 0.5))
    elif pattern == "bricks":
        shifted = beside / 2 + 0.5 * (np.floor(along) % 2)
        off_joint = np.minimum(0.5 - abs(along % 1 - 0.5), 1 - 2 * abs(shifted % 1 - 0.5))
        found = _edged(2 * (MORTAR - off_joint))
    else:
        found = _speckles(across, down, waves, seed)
    return found.astype(np.float32)


def textured(
    surface: Float[np.ndarray, "*rows 3"],
    texture: Texture,
    left: int,
    top: int,
    width: int,
    pixels: int,
) -> Float[np.ndarray, "h w 3"]:
    """A window of `width` columns at `left` and `top` of a picture, with a texture.

    `surface` is the colour of each row, (rows, 1, 3), and `pixels` the side of the picture.
    """
    across = _places(left, width, pixels)[None, :]
    down = _places(top, len(surface), pixels)[:, None]
    share = pattern_share(texture.pattern, across, down, texture.angle, texture.waves, texture.seed)
    towards = 1.0 if texture.shade > 0 else 0.0
    return surface + (abs(texture.shade) * share)[..., None] * (np.float32(towards) - surface)


def backdrop(background: Background, pixels: int) -> Float[np.ndarray, "H W 3"]:
    """The background as a square picture, each channel about 0 to 1."""
    first = np.array(background.first, dtype=np.float32)
    second = np.array(background.second, dtype=np.float32)
    return first + _share(background, pixels)[..., None] * (second - first)


def _share(background: Background, pixels: int) -> Float[np.ndarray, "H W"]:
    """The share of the second colour at each pixel, 0 to 1."""
    rng = np.random.default_rng(background.seed)
    across, down = _places(0, pixels, pixels)[None, :], _places(0, pixels, pixels)[:, None]
    cosine, sine = np.float32(math.cos(background.angle)), np.float32(math.sin(background.angle))
    along = across * cosine + down * sine
    match background.pattern:
        case "flat":
            return np.zeros((pixels, pixels), dtype=np.float32)
        case "gradient":
            return along / np.float32(math.sqrt(2)) + np.float32(0.5)
        case "glow":
            x, y = rng.uniform(-0.5, 0.5, 2).astype(np.float32)
            return np.exp(-((across - x) ** 2 + (down - y) ** 2) / np.float32(0.25))
        case "clouds":
            coarse = rng.integers(0, 256, (5, 5), dtype=np.uint8)
            clouds = Image.fromarray(coarse).resize((pixels, pixels), Image.Resampling.BICUBIC)
            return np.asarray(clouds, dtype=np.float32) / 255
        case "stripes":
            waves = np.float32(2 * math.pi * rng.uniform(5, 9))
            return np.float32(0.25) * (1 + np.sin(waves * along))
        case pattern:
            wanted = float(rng.uniform(4, 10))
            return pattern_share(pattern, across, down, background.angle, wanted, background.seed)


def _places(first: int, count: int, pixels: int) -> Float[np.ndarray, "count"]:
    """The distances of columns or rows from the picture's middle, in picture sides."""
    return (np.arange(first, first + count, dtype=np.float32) + 0.5) / pixels - 0.5


def _edged(wave: Float[np.ndarray, "H W"]) -> Float[np.ndarray, "H W"]:
    """A wave as ones and zeros with an edge between."""
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
