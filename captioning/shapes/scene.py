"""Scenes of a few objects with known places, attributes and relations; easy ones at random."""

from dataclasses import dataclass

import numpy as np

KINDS = ("circle", "square", "triangle", "star", "cross")
COLOURS = ("red", "green", "blue", "yellow", "purple", "orange")
SIZES = ("small", "large")
PATTERNS = ("flat", "gradient", "glow", "clouds", "stripes")

MARGIN = 1 / 16  # the usual centre crop of 224 out of 256 still shows every object whole
GAP = 0.03  # between the circles around two objects
CLEAR = 1.5  # smallest ratio of the two axes' distances at which captions state a relation

RADIUS = {"small": 0.115, "large": 0.19}
RADIUS_JITTER = 0.06
# Corners reach further than a round edge for the same area, so equal sizes look equal.
REACH = {"circle": 0.85, "square": 1.0, "triangle": 1.12, "star": 1.15, "cross": 1.0}
TILT = np.pi / 14  # more would turn a cross into an x and a square into a diamond


@dataclass(frozen=True)
class Texture:
    """A pattern on an object: its colour, here and there lighter or darker.

    Args:
        pattern: one of `captioning.shapes.textures.PATTERNS`.
        shade: what the pattern adds, from -1, black, to 1, white.
        waves: of the pattern along the picture's side.
        angle: of its direction, in radians.
        seed: of its noise.
    """

    pattern: str
    shade: float
    waves: float
    angle: float
    seed: int


@dataclass(frozen=True)
class Shape:
    """One object.

    Args:
        kind: one of `KINDS`.
        colour: one of `COLOURS`.
        size: one of `SIZES`.
        x: centre, as a fraction of the picture's width from its left edge.
        y: centre, as a fraction of the picture's height from its top edge.
        radius: of the circle around the object, as a fraction of the picture's side.
        angle: clockwise tilt in radians.
        texture: what is on it; none if it is plain.
    """

    kind: str
    colour: str
    size: str
    x: float
    y: float
    radius: float
    angle: float = 0.0
    texture: Texture | None = None


@dataclass(frozen=True)
class Background:
    """What lies behind the objects: two muted colours in a pattern.

    Args:
        pattern: one of `PATTERNS`, or of `captioning.shapes.textures.PATTERNS`.
        first: RGB, each 0 to 1.
        second: RGB, each 0 to 1; a flat background does not use it.
        angle: direction of a gradient or of stripes, in radians.
        seed: of the noise in the clouds and of where the glow lies.
    """

    pattern: str
    first: tuple[float, float, float]
    second: tuple[float, float, float]
    angle: float
    seed: int


@dataclass(frozen=True)
class Mark:
    """Something that no caption speaks of.

    Args:
        kind: one of `captioning.shapes.clutter.MARKS`.
        colour: RGB, each 0 to 1.
        x: centre, as a fraction of the picture's width from its left edge.
        y: centre, as a fraction of the picture's height from its top edge.
        reach: from the centre to its ends, as a fraction of the picture's side.
        width: of its stroke, as a fraction of the picture's side; a blob has none.
        angle: clockwise turn in radians.
        seed: of its form.
        in_front: whether it covers the objects; else they cover it.
    """

    kind: str
    colour: tuple[float, float, float]
    x: float
    y: float
    reach: float
    width: float
    angle: float
    seed: int
    in_front: bool


@dataclass(frozen=True)
class Scene:
    """Objects on a background; no two of them share kind, colour and size.

    Args:
        shapes: the objects; a later one covers earlier ones.
        background: what lies behind them.
        clutter: what else there is; a later mark covers earlier ones.
    """

    shapes: tuple[Shape, ...]
    background: Background
    clutter: tuple[Mark, ...] = ()


def relation(first: Shape, second: Shape, clear: float = 1.0) -> str | None:
    """Where the first shape lies, seen from the second: "left", "right", "above" or "below".

    The axis along which the centres lie further apart decides. None if that distance is not more
    than `clear` times the distance along the other axis.
    """
    across, down = first.x - second.x, first.y - second.y
    if abs(across) > clear * abs(down):
        return "left" if across < 0 else "right"
    if abs(down) > clear * abs(across):
        return "above" if down < 0 else "below"
    return None


def random_scene(rng: np.random.Generator) -> Scene:
    """Two or three objects, apart from one another, each pair in a clear relation."""
    count = int(rng.integers(2, 4))
    while True:
        attributes = [
            (str(rng.choice(KINDS)), str(rng.choice(COLOURS)), str(rng.choice(SIZES)))
            for _ in range(count)
        ]
        if len(set(attributes)) < count:
            continue
        jitter = 1 + RADIUS_JITTER * rng.uniform(-1, 1, count)
        radii = jitter * [RADIUS[size] * REACH[kind] for kind, _, size in attributes]
        centres = _layout(radii, rng)
        if centres is not None:
            break
    shapes = tuple(
        Shape(kind, colour, size, float(x), float(y), float(radius), float(angle))
        for (kind, colour, size), (x, y), radius, angle in zip(
            attributes, centres, radii, rng.uniform(-TILT, TILT, count), strict=True
        )
    )
    return Scene(shapes, _random_background(rng))


def _layout(radii: np.ndarray, rng: np.random.Generator) -> np.ndarray | None:
    """Centres (shapes, 2) that keep the shapes inside, apart and in clear relations.

    None if many random layouts gave none, because the shapes are too crowded.
    """
    reach = radii + MARGIN
    tries = rng.uniform(reach[:, None], 1 - reach[:, None], (200, len(radii), 2))
    fits = np.ones(len(tries), dtype=bool)
    for second in range(len(radii)):
        for first in range(second):
            apart = np.abs(tries[:, first] - tries[:, second])
            fits &= np.hypot(*apart.T) > radii[first] + radii[second] + GAP
            fits &= apart.max(1) > CLEAR * apart.min(1)
    return tries[fits.argmax()] if fits.any() else None


def _random_background(rng: np.random.Generator) -> Background:
    # Greyish, so that no background is mistaken for an object's colour, light or dark.
    lightness = rng.uniform(0.2, 0.9)
    first = np.clip(lightness + rng.uniform(-0.05, 0.05, 3), 0, 1)
    second = np.clip(first + rng.choice([-1, 1]) * rng.uniform(0.08, 0.2), 0.12, 0.97)
    second = np.clip(second + rng.uniform(-0.03, 0.03, 3), 0, 1)
    return Background(
        pattern=str(rng.choice(PATTERNS)),
        first=(float(first[0]), float(first[1]), float(first[2])),
        second=(float(second[0]), float(second[1]), float(second[2])),
        angle=float(rng.uniform(0, 2 * np.pi)),
        seed=int(rng.integers(2**31)),
    )
