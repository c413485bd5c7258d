"""What hard scenes hold besides objects: lines, curves, blobs and letters, of any colour."""

import math

import numpy as np
from jaxtyping import Bool, Float
from PIL import Image, ImageDraw

from captioning.shapes.scene import Mark

MARKS = ("line", "curve", "blob", "letter")
DETAIL = 4  # subpixels along each side of a pixel

# Each in one stroke, from -1 to 1, and none that could be taken for an object's kind.
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


def lay(canvas: Float[np.ndarray, "H W 3"], mark: Mark) -> None:
    """Draw the mark on the canvas."""
    coverage, left, top = _coverage(mark, len(canvas))
    height, width = coverage.shape
    window = canvas[top : top + height, left : left + width]
    window += coverage[..., None] * (np.array(mark.colour, dtype=np.float32) - window)


def covered_by(mark: Mark, pixels: int) -> Bool[np.ndarray, "H W"]:
    """Which pixels the mark covers by half or more."""
    coverage, left, top = _coverage(mark, pixels)
    covered = np.zeros((pixels, pixels), dtype=bool)
    height, width = coverage.shape
    covered[top : top + height, left : left + width] = coverage >= 0.5
    return covered


def _points(mark: Mark) -> Float[np.ndarray, "points 2"]:
    """Its outline, or the corners of its stroke, around its centre, x and y in picture sides."""
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


def _coverage(mark: Mark, pixels: int) -> tuple[Float[np.ndarray, "h w"], int, int]:
    """The share of each pixel that the mark covers, in a window; its left and top pixel."""
    points = (_points(mark) + np.array([mark.x, mark.y])) * pixels
    room = mark.width * pixels + 1
    left, top = np.clip(np.floor(points.min(axis=0) - room), 0, pixels - 1).astype(int).tolist()
    right, bottom = np.clip(np.ceil(points.max(axis=0) + room), 1, pixels).astype(int).tolist()
    right, bottom = max(right, left + 1), max(bottom, top + 1)
    # PIL's coordinates name the middle of a subpixel, ours its left upper corner.
    outline = [(float(x), float(y)) for x, y in (points - (left, top)) * DETAIL - 0.5]
    fine = Image.new("L", ((right - left) * DETAIL, (bottom - top) * DETAIL))
    draw = ImageDraw.Draw(fine)
    if mark.kind == "blob":
        draw.polygon(outline, fill=255)
    else:
        width = max(1, round(mark.width * pixels * DETAIL))
        draw.line(outline, fill=255, width=width, joint="curve")
    return np.asarray(fine.reduce(DETAIL), dtype=np.float32) / 255, left, top
