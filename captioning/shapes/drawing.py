"""Draws pictures of scenes, alike at every size, with masks and boxes of their objects."""

import math
from typing import TypeAlias

import numpy as np
from jaxtyping import Bool, Float, UInt8
from PIL import Image, ImageDraw, ImageFilter

from captioning.shapes.scene import Background, Scene, Shape

RGB = {
    "red": (214, 34, 44),
    "green": (38, 158, 62),
    "blue": (36, 84, 214),
    "yellow": (250, 216, 36),
    "purple": (146, 50, 190),
    "orange": (246, 126, 18),
}
DETAIL = 6  # subpixels along each side of a pixel
OUTLINE = 0.008  # width of the darker rim, as a fraction of the picture's side
SHADOW = 0.3  # share of the background's light that the shadow takes
SOFTNESS = 0.012  # offset of the shadow and width of its edge, in picture sides

Window: TypeAlias = tuple[slice, slice]
"""Rows and columns of a picture."""

# Corners of regular objects, and the radius of every second corner.
REGULAR = {"circle": (72, 1.0), "square": (4, 1.0), "triangle": (3, 1.0), "star": (10, 0.45)}
ARM = 0.36  # half the width of a cross's bar, which is 2 long


def picture(scene: Scene, pixels: int) -> UInt8[np.ndarray, "H W 3"]:
    """Draw a scene as a square RGB picture of `pixels` by `pixels`."""
    canvas = _backdrop(scene.background, pixels)
    for shape in scene.shapes:
        _paint(canvas, shape)
    return (np.clip(canvas, 0, 1) * 255 + 0.5).astype(np.uint8)


def mask(shape: Shape, pixels: int) -> Bool[np.ndarray, "H W"]:
    """The pixels that an object covers by half or more."""
    covered = np.zeros((pixels, pixels), dtype=bool)
    window, coverage = _coverage(shape, pixels)
    covered[window] = coverage >= 0.5
    return covered


def box(covered: Bool[np.ndarray, "H W"]) -> tuple[int, int, int, int]:
    """The smallest box around the covered pixels: x, y, width, height in pixels."""
    rows, columns = np.flatnonzero(covered.any(1)), np.flatnonzero(covered.any(0))
    left, top = int(columns[0]), int(rows[0])
    return left, top, int(columns[-1]) - left + 1, int(rows[-1]) - top + 1


def _paint(canvas: Float[np.ndarray, "H W 3"], shape: Shape) -> None:
    """Draw the object with its shadow, its darker rim and a soft light from above."""
    pixels = len(canvas)
    window, coverage = _coverage(shape, pixels)
    _, inner_coverage = _coverage(shape, pixels, OUTLINE * pixels)
    region = canvas[window]

    offset = max(1, round(SOFTNESS * pixels))
    blur = ImageFilter.GaussianBlur(SOFTNESS * pixels)
    blurred = Image.fromarray((coverage * 255).astype(np.uint8)).filter(blur)
    shadow = np.zeros_like(coverage)
    shadow[offset:, offset:] = np.asarray(blurred, dtype=np.float32)[:-offset, :-offset] / 255
    region *= 1 - SHADOW * shadow[..., None]

    colour = np.array(RGB[shape.colour], dtype=np.float32) / 255
    light = np.linspace(1.1, 0.92, len(coverage), dtype=np.float32)[:, None, None]
    surface = np.minimum(colour * light, 1)
    region += coverage[..., None] * (colour * 0.68 - region)
    region += inner_coverage[..., None] * (surface - region)


def _coverage(
    shape: Shape, pixels: int, rim: float = 0.0
) -> tuple[Window, Float[np.ndarray, "h w"]]:
    """The share of each pixel that an object covers, in the window around the object.

    A rim of this width in pixels is left out.
    """
    centre, outline = np.array([shape.x, shape.y]) * pixels, _outline(shape) * pixels
    reach = math.ceil((shape.radius + 4 * SOFTNESS) * pixels) + 1  # the shadow included
    start = np.clip(np.round(centre) - reach, 0, pixels - 1)
    stop = np.clip(np.round(centre) + reach, start + 1, pixels)
    (left, top), (right, bottom) = start.astype(int).tolist(), stop.astype(int).tolist()
    subpixels = Image.new("L", ((right - left) * DETAIL, (bottom - top) * DETAIL))
    draw = ImageDraw.Draw(subpixels)
    # PIL's coordinates are those of a subpixel's centre, ours of its upper left corner.
    points = [(x, y) for x, y in ((centre - start + outline) * DETAIL - 0.5).tolist()]
    draw.polygon(points, fill=255)
    if rim:
        closed_line = [*points, *points[:2]]
        draw.line(closed_line, fill=0, width=max(1, round(2 * rim * DETAIL)), joint="curve")
    coverage = np.asarray(subpixels.reduce(DETAIL), dtype=np.float32) / 255
    return (slice(top, bottom), slice(left, right)), coverage


def _outline(shape: Shape) -> Float[np.ndarray, "points 2"]:
    """The polygon of an object around its centre, x and y in picture sides."""
    if shape.kind == "cross":
        upper = [(-1, ARM), (-1, -ARM), (-ARM, -ARM), (-ARM, -1), (ARM, -1), (ARM, -ARM)]
        points = np.array([*upper, *((-x, -y) for x, y in upper)]) / math.hypot(1, ARM)
    else:
        count, inner_radius = REGULAR[shape.kind]
        start = math.pi / 4 if shape.kind == "square" else 0.0
        angles = start + 2 * np.pi * np.arange(count) / count
        radii = np.where(np.arange(count) % 2, inner_radius, 1.0)
        points = np.stack([np.sin(angles), -np.cos(angles)], axis=1) * radii[:, None]
    cos, sin = math.cos(shape.angle), math.sin(shape.angle)
    return np.asarray(shape.radius * points @ np.array([(cos, sin), (-sin, cos)]))


def _backdrop(background: Background, pixels: int) -> Float[np.ndarray, "H W 3"]:
    """The background as a square picture, each channel about 0 to 1."""
    rng = np.random.default_rng(background.seed)
    # Distances of rows or columns from the picture's middle, in picture sides.
    distances = (np.arange(pixels, dtype=np.float32) + 0.5) / pixels - 0.5
    angle = background.angle
    across, down = distances[None], distances[:, None]
    along = across * math.cos(angle) + down * math.sin(angle)
    match background.pattern:
        case "flat":
            share = np.zeros_like(along)
        case "gradient":
            share = along / math.sqrt(2) + 0.5
        case "glow":
            x, y = rng.uniform(-0.5, 0.5, 2).astype(np.float32)
            share = np.exp(-((across - x) ** 2 + (down - y) ** 2) / 0.25)
        case "clouds":
            share = _noise(rng, 5, pixels)
        case _:
            share = 0.25 * (1 + np.sin(2 * math.pi * rng.uniform(5, 9) * along))
    first = np.array(background.first, dtype=np.float32)
    second = np.array(background.second, dtype=np.float32)
    return first + share[..., None] * (second - first)


def _noise(rng: np.random.Generator, cells: int, pixels: int) -> Float[np.ndarray, "H W"]:
    """Smooth noise from 0 to 1: a coarse grid of random numbers, enlarged."""
    coarse = Image.fromarray(rng.integers(0, 256, (cells, cells), dtype=np.uint8))
    fine = coarse.resize((pixels, pixels), Image.Resampling.BICUBIC)
    return np.asarray(fine, dtype=np.float32) / 255
