"""Random scenes of plain objects."""

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

MARGIN = 1 / 16  # the usual centre crop of 224 out of 256 still shows every object whole
GAP = 0.03  # between the circles around two objects
# Corners reach further than a round edge for the same area, so equal sizes look equal.
REACH = {"circle": 0.85, "square": 1.0, "triangle": 1.12, "star": 1.15, "cross": 1.0}
TILT = np.pi / 14  # more would turn a cross into an x and a square into a diamond

RADIUS = {"small": 0.115, "large": 0.19}  # in picture sides


def random_scene(rng: np.random.Generator) -> Scene:
    """Two or three objects, apart, each pair in a clear relation."""
    count = int(rng.integers(2, 4))
    while (shapes := _shapes(count, rng)) is None:
        continue
    # Greyish, so that no background is mistaken for an object's colour, light or dark.
    lightness = rng.uniform(0.2, 0.9)
    first = np.clip(lightness + rng.uniform(-0.05, 0.05, 3), 0, 1)
    second = np.clip(first + rng.choice([-1, 1]) * rng.uniform(0.08, 0.2), 0.12, 0.97)
    second = np.clip(second + rng.uniform(-0.03, 0.03, 3), 0, 1)
    return Scene(shapes, _background(first, second, rng))


def _shapes(count: int, rng: np.random.Generator) -> tuple[Shape, ...] | None:
    """Different objects inside the picture, far enough apart; None if chance gives none.

    At most two have the same kind and colour, so that a list of all remains short.
    """
    named = [
        (str(rng.choice(KINDS)), str(rng.choice(COLOURS)), str(rng.choice(SIZES)))
        for _ in range(count)
    ]
    alike = len({(kind, colour) for kind, colour, _ in named})
    if len(set(named)) < count or alike < count - 1:
        return None
    factors = 1 + 0.06 * rng.uniform(-1, 1, count)
    radii = factors * [RADIUS[size] * REACH[kind] for kind, _, size in named]
    reach = radii + MARGIN
    tries = rng.uniform(reach[:, None], 1 - reach[:, None], (200, count, 2))
    good = np.ones(len(tries), dtype=bool)
    for one, other in combinations(range(count), 2):
        both, apart = radii[one] + radii[other], np.abs(tries[:, one] - tries[:, other])
        distance, is_clear = np.hypot(*apart.T), apart.max(1) > CLEAR * apart.min(1)
        good &= (distance > both + GAP) & is_clear
    if not good.any():
        return None
    shapes = []
    for names, (x, y), size in zip(named, tries[good.argmax()].tolist(), radii, strict=True):
        angle = rng.uniform(-TILT, TILT)
        shapes.append(Shape(*names, x, y, float(size), angle))
    return tuple(shapes)


def _background(first: np.ndarray, second: np.ndarray, rng: np.random.Generator) -> Background:
    pattern, angle = str(rng.choice(BACKDROPS)), rng.uniform(0, 2 * np.pi)
    return Background(pattern, _rgb(first), _rgb(second), angle, int(rng.integers(2**31)))


def _rgb(colour: np.ndarray) -> tuple[float, float, float]:
    red, green, blue = colour.tolist()
    return red, green, blue
