"""Draws random scenes of plain objects."""

from itertools import combinations

import numpy as np

from captioning.shapes.scene import (
    BACKDROPS,
    CLEAR,
    COLOURS,
    KINDS,
    SIZES,
    Background,
    Scene,
    Shape,
)

BORDER = 1 / 16  # without objects: the usual crop of 224 of 256 pixels cuts none
MIN_GAP = 0.03  # between the circles around two objects
# Corners reach further than a circle of the same area, so equal sizes look equal.
REACH = {"circle": 0.85, "square": 1.0, "triangle": 1.12, "star": 1.15, "cross": 1.0}
TILT = np.pi / 14  # more would turn a cross into an x and a square into a diamond

RADIUS = {"small": 0.115, "large": 0.19}  # in picture sides


def random_scene(rng: np.random.Generator) -> Scene:
    """Draw a scene of two or three separate objects, each pair in a clear relation."""
    count = int(rng.integers(2, 4))
    while (shapes := _shapes(count, rng)) is None:
        continue
    # Greyish, so that no background, light or dark, has the colour of an object.
    lightness = rng.uniform(0.2, 0.9)
    first = np.clip(lightness + rng.uniform(-0.05, 0.05, 3), 0, 1)
    second = np.clip(first + rng.choice([-1, 1]) * rng.uniform(0.08, 0.2), 0.12, 0.97)
    second = np.clip(second + rng.uniform(-0.03, 0.03, 3), 0, 1)
    return Scene(shapes, _background(first, second, rng))


def _shapes(count: int, rng: np.random.Generator) -> tuple[Shape, ...] | None:
    """Draw different objects inside the picture, far enough apart; None if the draw fails.

    At most two have the same kind and colour, so that a list of all is short.
    """
    attributes = [
        (str(rng.choice(KINDS)), str(rng.choice(COLOURS)), str(rng.choice(SIZES)))
        for _ in range(count)
    ]
    distinct_kinds = len({(kind, colour) for kind, colour, _ in attributes})
    if len(set(attributes)) < count or distinct_kinds < count - 1:
        return None
    factors = 1 + 0.06 * rng.uniform(-1, 1, count)
    radii = factors * [RADIUS[size] * REACH[kind] for kind, _, size in attributes]
    reach = radii + BORDER
    layouts = rng.uniform(reach[:, None], 1 - reach[:, None], (200, count, 2))
    is_valid = np.ones(len(layouts), dtype=bool)
    for first, second in combinations(range(count), 2):
        offsets = np.abs(layouts[:, first] - layouts[:, second])
        min_distance = radii[first] + radii[second] + MIN_GAP
        is_clear = offsets.max(1) > CLEAR * offsets.min(1)
        is_valid &= (np.hypot(*offsets.T) > min_distance) & is_clear
    if not is_valid.any():
        return None
    shapes = []
    centres = layouts[is_valid.argmax()].tolist()
    for (kind, colour, size), (x, y), radius in zip(attributes, centres, radii, strict=True):
        angle = rng.uniform(-TILT, TILT)
        shapes.append(Shape(kind, colour, size, x, y, float(radius), angle))
    return tuple(shapes)


def _background(first: np.ndarray, second: np.ndarray, rng: np.random.Generator) -> Background:
    pattern, angle = str(rng.choice(BACKDROPS)), rng.uniform(0, 2 * np.pi)
    return Background(pattern, _rgb(first), _rgb(second), angle, int(rng.integers(2**31)))


def _rgb(colour: np.ndarray) -> tuple[float, float, float]:
    red, green, blue = colour.tolist()
    return red, green, blue
