"""Pictures of scenes, with masks and boxes of their objects."""

import math

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
    for mark in scene.clutter:
        if not mark.in_front:
            _lay(canvas, mark)
    for shape in scene.shapes:
        _paint(canvas, shape)
    for mark in scene.clutter:
        if mark.in_front:
            _lay(canvas, mark)
    return (np.clip(canvas, 0, 1) * 255 + 0.5).astype(np.uint8)


def visible_masks(scene: Scene, pixels: int) -> list[Bool[np.ndarray, "H W"]]:
    """The mask of each object without the pixels that later objects or marks in front cover."""
    hidden = np.zeros((pixels, pixels), dtype=bool)
    for mark in scene.clutter:
        if mark.in_front:
            hidden |= mark_mask(mark, pixels)
    found = []
    for shape in reversed(scene.shapes):
        whole = mask(shape, pixels)
        found.append(whole & ~hidden)
        hidden |= whole
    return found[::-1]


def mask(shape: Shape, pixels: int) -> Bool[np.ndarray, "H W"]:
    """Which pixels the object covers by half or more, if nothing hides it."""
    return _half_covered(*_coverage(shape, pixels, rim=0.0), pixels)


def box(covered: Bool[np.ndarray, "H W"]) -> tuple[int, int, int, int]:
    """The smallest box around the covered pixels: x, y, width, height in pixels."""
    rows, columns = np.flatnonzero(covered.any(1)), np.flatnonzero(covered.any(0))
    left, top = int(columns[0]), int(rows[0])
    return left, top, int(columns[-1]) - left + 1, int(rows[-1]) - top + 1


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
    c, s = math.cos(shape.angle), math.sin(shape.angle)
    return shape.radius * points @ np.array([(c, s), (-s, c)])


def _coverage(shape: Shape, pixels: int, rim: float) -> tuple[Float[np.ndarray, "h w"], int, int]:
    """The share of each pixel that the object without its rim covers, in a window around it.

    Returns the window's coverage, 0 to 1, and its left and top pixel. `rim` is in pixels.
    """
    room = math.ceil((shape.radius + 4 * SOFTNESS) * pixels) + 1  # the shadow needs room as well
    left, top = round(shape.x * pixels) - room, round(shape.y * pixels) - room
    stop_x, stop_y = min(left + 2 * room, pixels), min(top + 2 * room, pixels)
    left, top = max(left, 0), max(top, 0)
    centre = np.array([shape.x * pixels - left, shape.y * pixels - top])
    # PIL's coordinates name the middle of a subpixel, ours its left upper corner.
    points = (centre + _corners(shape) * pixels) * DETAIL - 0.5
    outline = [(float(x), float(y)) for x, y in points]
    fine = Image.new("L", ((stop_x - left) * DETAIL, (stop_y - top) * DETAIL))
    draw = ImageDraw.Draw(fine)
    draw.polygon(outline, fill=255)
    if rim:
        closed = [*outline, outline[0], outline[1]]
        draw.line(closed, fill=0, width=max(1, round(2 * rim * DETAIL)), joint="curve")
    return np.asarray(fine.reduce(DETAIL), dtype=np.float32) / 255, left, top


def _paint(canvas: Float[np.ndarray, "H W 3"], shape: Shape) -> None:
    """Lay the object with its shadow, its darker rim and a soft light from above on the canvas."""
    pixels = len(canvas)
    whole, left, top = _coverage(shape, pixels, rim=0.0)
    inner, _, _ = _coverage(shape, pixels, rim=OUTLINE * pixels)
    height, width = whole.shape
    window = canvas[top : top + height, left : left + width]

    drop = max(1, round(SOFTNESS * pixels))
    soft = Image.fromarray((whole * 255).astype(np.uint8)).filter(
        ImageFilter.GaussianBlur(SOFTNESS * pixels)
    )
    shadow = np.zeros_like(whole)
    shadow[drop:, drop:] = np.asarray(soft, dtype=np.float32)[:-drop, :-drop] / 255
    window *= 1 - SHADOW * shadow[..., None]

    colour = np.array(RGB[shape.colour], dtype=np.float32) / 255
    light = np.linspace(1.1, 0.92, height, dtype=np.float32)[:, None, None]
    surface = np.minimum(colour * light, 1)
    if shape.texture is not None:
        surface = textured(surface, shape.texture, left, top, width, pixels)
    window += whole[..., None] * (colour * 0.68 - window)
    window += inner[..., None] * (surface - window)


def _lay(canvas: Float[np.ndarray, "H W 3"], mark: Mark) -> None:
    """Draw the mark on the canvas."""
    coverage, left, top = _mark_coverage(mark, len(canvas))
    height, width = coverage.shape
    window = canvas[top : top + height, left : left + width]
    window += coverage[..., None] * (np.array(mark.colour, dtype=np.float32) - window)


def mark_mask(mark: Mark, pixels: int) -> Bool[np.ndarray, "H W"]:
    """Which pixels the mark covers by half or more."""
    return _half_covered(*_mark_coverage(mark, pixels), pixels)


def _half_covered(
    coverage: Float[np.ndarray, "h w"], left: int, top: int, pixels: int
) -> Bool[np.ndarray, "H W"]:
    covered = np.zeros((pixels, pixels), dtype=bool)
    height, width = coverage.shape
    covered[top : top + height, left : left + width] = coverage >= 0.5
    return covered


def _points(mark: Mark) -> Float[np.ndarray, "points 2"]:
    """The mark's outline or stroke around its centre, x and y in picture sides."""
    rng = np.random.default_rng(mark.seed)
    match mark.kind:
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
            points = np.array(LETTERS[sorted(LETTERS)[rng.integers(len(LETTERS))]])
            points = points / math.sqrt(2)
        case _:
            raise ValueError(f"unknown mark {mark.kind!r}")
    c, s = math.cos(mark.angle), math.sin(mark.angle)
    return np.asarray(mark.reach * points @ np.array([(c, s), (-s, c)]))


def _mark_coverage(mark: Mark, pixels: int) -> tuple[Float[np.ndarray, "h w"], int, int]:
    """The share of each pixel that the mark covers, in a window; its left and top pixel."""
    points = (_points(mark) + np.array([mark.x, mark.y])) * pixels
    room = mark.width * pixels + 1
    left, top = np.clip(np.floor(points.min(axis=0) - room), 0, pixels - 1).astype(int).tolist()
    right, bottom = np.clip(np.ceil(points.max(axis=0) + room), 1, pixels).astype(int).tolist()
    right, bottom = max(right, left + 1), max(bottom, top + 1)
    # PIL's coordinates name the middle of a subpixel, ours its left upper corner.
    outline = [(float(x), float(y)) for x, y in (points - (left, top)) * MARK_DETAIL - 0.5]
    fine = Image.new("L", ((right - left) * MARK_DETAIL, (bottom - top) * MARK_DETAIL))
    draw = ImageDraw.Draw(fine)
    if mark.kind == "blob":
        draw.polygon(outline, fill=255)
    else:
        width = max(1, round(mark.width * pixels * MARK_DETAIL))
        draw.line(outline, fill=255, width=width, joint="curve")
    return np.asarray(fine.reduce(MARK_DETAIL), dtype=np.float32) / 255, left, top
