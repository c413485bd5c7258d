"""Pictures of scenes, the same at every size, with masks and boxes of their objects."""

import math
from typing import TypeAlias

import numpy as np
from jaxtyping import Bool, Float, UInt8
from PIL import Image, ImageDraw, ImageFilter

from captioning.shapes.scene import Background, Mark, Scene, Shape, Texture

RGB = {
    "red": (214, 34, 44),
    "green": (38, 158, 62),
    "blue": (36, 84, 214),
    "yellow": (250, 216, 36),
    "purple": (146, 50, 190),
    "orange": (246, 126, 18),
}
DETAIL, MARK_DETAIL = 6, 4  # subpixels along each side of a pixel of objects and of marks
OUTLINE = 0.008  # width of the darker rim, as a fraction of the picture's side
SHADOW = 0.3  # share of the background's light that the shadow takes
SOFTNESS = 0.012  # offset of the shadow and width of its edge, in picture sides

PATTERNS = ("stripes", "checks", "dots", "bricks", "speckles")
EDGE = 4.0  # how fast a pattern goes from 0 to 1, per unit of its wave
MORTAR = 0.18  # between bricks, as a share of their height

Window: TypeAlias = tuple[slice, slice]
"""Rows and columns of a picture."""

# Corners, and the reach of every second one, of regular objects.
REGULAR = {"circle": (72, 1.0), "square": (4, 1.0), "triangle": (3, 1.0), "star": (10, 0.45)}
ARM = 0.36  # half the width of a cross's bar, where a whole bar is 2 long

# Each in one stroke, from -1 to 1. Letters that look like an object, such as O, are left out.
LETTERS = {
    "C": ((1, -0.7), (0.4, -1), (-0.4, -1), (-1, -0.4), (-1, 0.4), (-0.4, 1), (0.4, 1), (1, 0.7)),
    "L": ((-0.6, -1), (-0.6, 1), (0.7, 1)),
    "M": ((-0.9, 1), (-0.9, -1), (0, 0.4), (0.9, -1), (0.9, 1)),
    "N": ((-0.7, 1), (-0.7, -1), (0.7, 1), (0.7, -1)),
    "S": ((0.8, -0.8), (0, -1), (-0.7, -0.6), (0.7, 0.5), (0, 1), (-0.8, 0.8)),
    "U": ((-0.8, -1), (-0.8, 0.4), (-0.3, 1), (0.3, 1), (0.8, 0.4), (0.8, -1)),
    "W": ((-1, -1), (-0.5, 1), (0, -0.4), (0.5, 1), (1, -1)),
    "Z": ((-0.8, -1), (0.8, -1), (-0.8, 1), (0.8, 1)),
}


def picture(scene: Scene, pixels: int) -> UInt8[np.ndarray, "H W 3"]:
    """The scene as a square RGB picture of `pixels` by `pixels`."""
    canvas = _backdrop(scene.background, pixels)
    behind = [mark for mark in scene.clutter if not mark.in_front]
    in_front = [mark for mark in scene.clutter if mark.in_front]
    parts: list[Shape | Mark] = [*behind, *scene.shapes, *in_front]
    for part in parts:
        if isinstance(part, Shape):
            _paint(canvas, part)
        else:
            window, coverage = _coverage(part, pixels)
            colour = np.array(part.colour, dtype=np.float32)
            canvas[window] += coverage[..., None] * (colour - canvas[window])
    return (np.clip(canvas, 0, 1) * 255 + 0.5).astype(np.uint8)


def visible_masks(scene: Scene, pixels: int) -> list[Bool[np.ndarray, "H W"]]:
    """The mask of each object without the pixels that later objects or marks in front cover."""
    hidden = np.zeros((pixels, pixels), dtype=bool)
    for mark in scene.clutter:
        if mark.in_front:
            hidden |= mask(mark, pixels)
    found = []
    for shape in reversed(scene.shapes):
        whole = mask(shape, pixels)
        found.append(whole & ~hidden)
        hidden |= whole
    return found[::-1]


def mask(part: Shape | Mark, pixels: int) -> Bool[np.ndarray, "H W"]:
    """Which pixels an object or a mark covers by half or more, if nothing hides it."""
    covered = np.zeros((pixels, pixels), dtype=bool)
    window, coverage = _coverage(part, pixels)
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
    window, whole = _coverage(shape, pixels)
    _, inner = _coverage(shape, pixels, OUTLINE * pixels)
    below = canvas[window]

    drop = max(1, round(SOFTNESS * pixels))
    blur = ImageFilter.GaussianBlur(SOFTNESS * pixels)
    soft = Image.fromarray((whole * 255).astype(np.uint8)).filter(blur)
    shadow = np.zeros_like(whole)
    shadow[drop:, drop:] = np.asarray(soft, dtype=np.float32)[:-drop, :-drop] / 255
    below *= 1 - SHADOW * shadow[..., None]

    colour = np.array(RGB[shape.colour], dtype=np.float32) / 255
    light = np.linspace(1.1, 0.92, len(whole), dtype=np.float32)[:, None, None]
    surface = np.minimum(colour * light, 1)
    if (texture := shape.texture) is not None:
        down, across = (_places(side, pixels) for side in window)
        share = pattern_share(texture, across[None], down[:, None])
        towards = np.float32(texture.shade > 0)
        surface = surface + (abs(texture.shade) * share)[..., None] * (towards - surface)
    below += whole[..., None] * (colour * 0.68 - below)
    below += inner[..., None] * (surface - below)


def _coverage(
    part: Shape | Mark, pixels: int, rim: float = 0.0
) -> tuple[Window, Float[np.ndarray, "h w"]]:
    """The share of each pixel that a part covers, in a window around it, without a rim in pixels.

    Objects and blobs are polygons, other marks strokes.
    """
    centre, outline = np.array([part.x, part.y]) * pixels, _outline(part) * pixels
    width = part.width * pixels if isinstance(part, Mark) else 0.0
    if isinstance(part, Shape):
        room = math.ceil((part.radius + 4 * SOFTNESS) * pixels) + 1  # the shadow needs room as well
        first, last = np.round(centre) - room, np.round(centre) + room
    else:
        first = np.floor(centre + outline.min(axis=0) - width - 1)
        last = np.ceil(centre + outline.max(axis=0) + width + 1)
    first = np.clip(first, 0, pixels - 1)
    (left, top), (right, bottom) = (
        edge.astype(int).tolist() for edge in (first, np.clip(last, first + 1, pixels))
    )
    detail = DETAIL if isinstance(part, Shape) else MARK_DETAIL
    fine = Image.new("L", ((right - left) * detail, (bottom - top) * detail))
    draw = ImageDraw.Draw(fine)
    # PIL's coordinates name the middle of a subpixel, ours its left upper corner.
    points = [(x, y) for x, y in ((centre - first + outline) * detail - 0.5).tolist()]
    if width:
        draw.line(points, fill=255, width=max(1, round(width * detail)), joint="curve")
    else:
        draw.polygon(points, fill=255)
    if rim:
        closed = [*points, *points[:2]]
        draw.line(closed, fill=0, width=max(1, round(2 * rim * detail)), joint="curve")
    coverage = np.asarray(fine.reduce(detail), dtype=np.float32) / 255
    return (slice(top, bottom), slice(left, right)), coverage


def _outline(part: Shape | Mark) -> Float[np.ndarray, "points 2"]:
    """The polygon or the stroke of a part around its centre, x and y in picture sides."""
    rng = np.random.default_rng(part.seed if isinstance(part, Mark) else 0)
    match part.kind:
        case "cross":
            upper = [(-1, ARM), (-1, -ARM), (-ARM, -ARM), (-ARM, -1), (ARM, -1), (ARM, -ARM)]
            points = np.array([*upper, *((-x, -y) for x, y in upper)]) / math.hypot(1, ARM)
        case "line":
            points = np.array([(-1.0, 0.0), (1.0, 0.0)])
        case "curve":
            along = np.linspace(-1, 1, 25)
            waves, start = rng.uniform(1.5, 4), rng.uniform(0, 2 * math.pi)
            points = np.stack([along, 0.35 * np.sin(waves * along + start)], axis=1)
        case "blob":
            turns = np.linspace(0, 2 * math.pi, 48, endpoint=False)
            lobes, start = rng.integers(2, 4), rng.uniform(0, 2 * math.pi)
            radii = (1 + 0.5 * np.sin(lobes * turns)) * (1 + 0.25 * np.sin(turns + start)) / 1.9
            points = np.stack([radii * np.cos(turns), radii * np.sin(turns)], axis=1)
        case "letter":
            points = np.array(LETTERS[sorted(LETTERS)[rng.integers(len(LETTERS))]]) / math.sqrt(2)
        case kind:
            count, inner = REGULAR[kind]
            start = math.pi / 4 if kind == "square" else 0.0
            angles = start + 2 * np.pi * np.arange(count) / count
            reach = np.where(np.arange(count) % 2, inner, 1.0)
            points = np.stack([np.sin(angles), -np.cos(angles)], axis=1) * reach[:, None]
    c, s = math.cos(part.angle), math.sin(part.angle)
    size = part.radius if isinstance(part, Shape) else part.reach
    return np.asarray(size * points @ np.array([(c, s), (-s, c)]))


def pattern_share(
    texture: Texture, across: Float[np.ndarray, "1 W"], down: Float[np.ndarray, "H 1"]
) -> Float[np.ndarray, "H W"]:
    """The strength of a pattern at each place, 0 to 1.

    Places are distances from the picture's middle in picture sides.
    """
    angle, waves = texture.angle, texture.waves
    along = (across * math.cos(angle) + down * math.sin(angle)) * waves
    beside = (down * math.cos(angle) - across * math.sin(angle)) * waves
    match texture.pattern:
        case "stripes":
            wave = np.sin(2 * math.pi * along)
        case "checks":
            wave = np.sin(math.pi * along) * np.sin(math.pi * beside) * 2
        case "dots":
            wave = 1 - 3 * np.hypot(along % 1 - 0.5, beside % 1 - 0.5)
        case "bricks":
            shifted = beside / 2 + 0.5 * (np.floor(along) % 2)
            off_joint = np.minimum(0.5 - abs(along % 1 - 0.5), 1 - 2 * abs(shifted % 1 - 0.5))
            wave = 2 * (MORTAR - off_joint)
        case _:  # noise of two sizes, read off a picture of it at each place
            rng = np.random.default_rng(texture.seed)
            rows, columns = (
                np.clip((place.ravel() + 0.5) * 256, 0, 255).astype(int) for place in (down, across)
            )
            sizes = (max(2, round(octave * waves)) for octave in (2, 4))
            noise = [_noise(rng, cells, 256)[np.ix_(rows, columns)] for cells in sizes]
            wave = 0.75 * (np.mean(noise, axis=0, dtype=float) - 0.5)
    return np.clip(0.5 + EDGE * wave, 0, 1).astype(np.float32)


def _backdrop(background: Background, pixels: int) -> Float[np.ndarray, "H W 3"]:
    """The background as a square picture, each channel about 0 to 1."""
    rng = np.random.default_rng(background.seed)
    place, angle = _places(slice(pixels), pixels), background.angle
    across, down = place[None], place[:, None]
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
        case "stripes":
            share = 0.25 * (1 + np.sin(2 * math.pi * rng.uniform(5, 9) * along))
        case pattern:
            waves = rng.uniform(4, 10)
            texture = Texture(pattern, 1.0, waves, angle, background.seed)
            share = pattern_share(texture, across, down)
    first, second = (
        np.array(colour, dtype=np.float32) for colour in (background.first, background.second)
    )
    return first + share[..., None] * (second - first)


def _places(window: slice, pixels: int) -> Float[np.ndarray, "count"]:
    """The distances of rows or columns from the picture's middle, in picture sides."""
    return (np.arange(window.start or 0, window.stop, dtype=np.float32) + 0.5) / pixels - 0.5


def _noise(rng: np.random.Generator, cells: int, pixels: int) -> Float[np.ndarray, "H W"]:
    """Smooth noise, 0 to 1: a coarse grid of random numbers, enlarged."""
    coarse = Image.fromarray(rng.integers(0, 256, (cells, cells), dtype=np.uint8))
    fine = coarse.resize((pixels, pixels), Image.Resampling.BICUBIC)
    return np.asarray(fine, dtype=np.float32) / 255
