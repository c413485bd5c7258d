"""Pictures of scenes, with masks and boxes of their objects."""

import math
from typing import TypeAlias

import numpy as np
from jaxtyping import Bool, Float, UInt8
from PIL import Image, ImageDraw, ImageFilter

from captioning.shapes.patterns import backdrop, textured
from captioning.shapes.scene import Mark, Scene, Shape

RGB = {
    "red": (214, 34, 44),
    "green": (38, 158, 62),
    "blue": (36, 84, 214),
    "yellow": (250, 216, 36),
    "purple": (146, 50, 190),
    "orange": (246, 126, 18),
}
DETAIL = 6  # subpixels along each side of a pixel, for smooth edges
MARK_DETAIL = 4  # the same for marks
OUTLINE = 0.008  # width of the darker rim, as a fraction of the picture's side
SHADOW = 0.3  # share of the background's light that the shadow takes
SOFTNESS = 0.012  # offset of the shadow and width of its edge, in picture sides

Window: TypeAlias = tuple[slice, slice]
"""Rows and columns of a picture."""

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
    canvas = backdrop(scene.background, pixels)
    behind = [mark for mark in scene.clutter if not mark.in_front]
    in_front = [mark for mark in scene.clutter if mark.in_front]
    parts: tuple[Shape | Mark, ...] = (*behind, *scene.shapes, *in_front)
    for part in parts:
        if isinstance(part, Shape):
            _paint(canvas, part)
        else:
            window, coverage = _mark_coverage(part, pixels)
            colour = np.array(part.colour, dtype=np.float32)
            canvas[window] += coverage[..., None] * (colour - canvas[window])
    return (np.clip(canvas, 0, 1) * 255 + 0.5).astype(np.uint8)


def visible_masks(scene: Scene, pixels: int) -> list[Bool[np.ndarray, "H W"]]:
    """The mask of each object without the pixels that later objects or marks in front cover."""
    hidden = np.zeros((pixels, pixels), dtype=bool)
    for mark in scene.clutter:
        if mark.in_front:
            hidden |= _half_covered(*_mark_coverage(mark, pixels), pixels)
    found = []
    for shape in reversed(scene.shapes):
        whole = mask(shape, pixels)
        found.append(whole & ~hidden)
        hidden |= whole
    return found[::-1]


def mask(shape: Shape, pixels: int) -> Bool[np.ndarray, "H W"]:
    """Which pixels the object covers by half or more, if nothing hides it."""
    return _half_covered(*_shape_coverage(shape, pixels), pixels)


def box(covered: Bool[np.ndarray, "H W"]) -> tuple[int, int, int, int]:
    """The smallest box around the covered pixels: x, y, width, height in pixels."""
    rows, columns = np.flatnonzero(covered.any(1)), np.flatnonzero(covered.any(0))
    left, top = int(columns[0]), int(rows[0])
    return left, top, int(columns[-1]) - left + 1, int(rows[-1]) - top + 1


def _half_covered(
    window: Window, coverage: Float[np.ndarray, "h w"], pixels: int
) -> Bool[np.ndarray, "H W"]:
    covered = np.zeros((pixels, pixels), dtype=bool)
    covered[window] = coverage >= 0.5
    return covered


def _paint(canvas: Float[np.ndarray, "H W 3"], shape: Shape) -> None:
    """Draw the object with its shadow, its darker rim and a soft light from above."""
    pixels = len(canvas)
    window, whole = _shape_coverage(shape, pixels)
    _, inner = _shape_coverage(shape, pixels, rim=OUTLINE * pixels)
    height, width = whole.shape
    below = canvas[window]

    drop = max(1, round(SOFTNESS * pixels))
    soft = Image.fromarray((whole * 255).astype(np.uint8)).filter(
        ImageFilter.GaussianBlur(SOFTNESS * pixels)
    )
    shadow = np.zeros_like(whole)
    shadow[drop:, drop:] = np.asarray(soft, dtype=np.float32)[:-drop, :-drop] / 255
    below *= 1 - SHADOW * shadow[..., None]

    colour = np.array(RGB[shape.colour], dtype=np.float32) / 255
    light = np.linspace(1.1, 0.92, height, dtype=np.float32)[:, None, None]
    surface = np.minimum(colour * light, 1)
    if shape.texture is not None:
        rows, columns = window
        surface = textured(surface, shape.texture, columns.start, rows.start, width, pixels)
    below += whole[..., None] * (colour * 0.68 - below)
    below += inner[..., None] * (surface - below)


def _shape_coverage(
    shape: Shape, pixels: int, rim: float = 0.0
) -> tuple[Window, Float[np.ndarray, "h w"]]:
    """The share of each pixel that the object covers, in a window around it.

    Args:
        shape: the object.
        pixels: side of the picture.
        rim: width of the rim that is left out, in pixels.
    """
    room = math.ceil((shape.radius + 4 * SOFTNESS) * pixels) + 1  # the shadow needs room as well
    left, top = round(shape.x * pixels) - room, round(shape.y * pixels) - room
    columns = slice(max(left, 0), min(left + 2 * room, pixels))
    rows = slice(max(top, 0), min(top + 2 * room, pixels))
    centre = np.array([shape.x * pixels - columns.start, shape.y * pixels - rows.start])
    outline = centre + _corners(shape) * pixels
    return (rows, columns), _coverage(outline, (rows, columns), DETAIL, rim=rim)


def _mark_coverage(mark: Mark, pixels: int) -> tuple[Window, Float[np.ndarray, "h w"]]:
    """The share of each pixel that the mark covers, in a window around it."""
    points = (_stroke(mark) + np.array([mark.x, mark.y])) * pixels
    room = mark.width * pixels + 1
    left, top = np.clip(np.floor(points.min(axis=0) - room), 0, pixels - 1).astype(int).tolist()
    right, bottom = np.clip(np.ceil(points.max(axis=0) + room), 1, pixels).astype(int).tolist()
    window = slice(top, max(bottom, top + 1)), slice(left, max(right, left + 1))
    width = None if mark.kind == "blob" else mark.width * pixels
    return window, _coverage(points - (left, top), window, MARK_DETAIL, width)


def _coverage(
    points: Float[np.ndarray, "points 2"],
    window: Window,
    detail: int,
    width: float | None = None,
    rim: float = 0.0,
) -> Float[np.ndarray, "h w"]:
    """The share of each pixel of a window that a polygon covers, or a stroke of this width.

    Points and widths are in pixels, from the window's left upper corner.
    """
    rows, columns = window
    fine = Image.new(
        "L", ((columns.stop - columns.start) * detail, (rows.stop - rows.start) * detail)
    )
    draw = ImageDraw.Draw(fine)
    # PIL's coordinates name the middle of a subpixel, ours its left upper corner.
    outline = [(float(x), float(y)) for x, y in points * detail - 0.5]
    if width is None:
        draw.polygon(outline, fill=255)
    else:
        draw.line(outline, fill=255, width=max(1, round(width * detail)), joint="curve")
    if rim:
        closed = [*outline, *outline[:2]]
        draw.line(closed, fill=0, width=max(1, round(2 * rim * detail)), joint="curve")
    return np.asarray(fine.reduce(detail), dtype=np.float32) / 255


def _corners(shape: Shape) -> Float[np.ndarray, "corners 2"]:
    """The object's outline as a closed polygon around its centre, x and y in picture sides."""
    if shape.kind == "cross":
        arm = 0.36  # half the width of a bar, where a whole bar is 2 long
        upper = [(-1, arm), (-1, -arm), (-arm, -arm), (-arm, -1), (arm, -1), (arm, -arm)]
        points = np.array([*upper, *((-x, -y) for x, y in upper)]) / math.hypot(1, arm)
    else:
        count, inner = {
            "circle": (72, 1.0),
            "square": (4, 1.0),
            "triangle": (3, 1.0),
            "star": (10, 0.45),
        }[shape.kind]
        start = math.pi / 4 if shape.kind == "square" else 0.0
        angles = start + 2 * np.pi * np.arange(count) / count
        reach = np.where(np.arange(count) % 2, inner, 1.0)
        points = np.stack([np.sin(angles), -np.cos(angles)], axis=1) * reach[:, None]
    return _turned(shape.radius * points, shape.angle)


def _stroke(mark: Mark) -> Float[np.ndarray, "points 2"]:
    """The mark's outline or stroke around its centre, x and y in picture sides."""
    rng = np.random.default_rng(mark.seed)
    if mark.kind == "line":
        points = np.array([(-1.0, 0.0), (1.0, 0.0)])
    elif mark.kind == "curve":
        along = np.linspace(-1, 1, 25)
        waves, start = rng.uniform(1.5, 4), rng.uniform(0, 2 * math.pi)
        points = np.stack([along, 0.35 * np.sin(waves * along + start)], axis=1)
    elif mark.kind == "blob":
        turns = np.linspace(0, 2 * math.pi, 48, endpoint=False)
        lobes, start = rng.integers(2, 4), rng.uniform(0, 2 * math.pi)
        radii = (1 + 0.5 * np.sin(lobes * turns)) * (1 + 0.25 * np.sin(turns + start)) / 1.9
        points = np.stack([radii * np.cos(turns), radii * np.sin(turns)], axis=1)
    else:
        letter = sorted(LETTERS)[rng.integers(len(LETTERS))]
        points = np.array(LETTERS[letter]) / math.sqrt(2)
    return _turned(mark.reach * points, mark.angle)


def _turned(points: Float[np.ndarray, "points 2"], angle: float) -> Float[np.ndarray, "points 2"]:
    """The points turned clockwise around the origin."""
    c, s = math.cos(angle), math.sin(angle)
    return np.asarray(points @ np.array([(c, s), (-s, c)]))
