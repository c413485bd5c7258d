"""Random scenes: easy ones of plain objects, and hard ones of textured objects among clutter."""

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from captioning.shapes.drawing import PATTERNS, RGB, mask, visible_masks
from captioning.shapes.scene import (
    BACKDROPS,
    CLEAR,
    COLOURS,
    KINDS,
    MARKS,
    SIZES,
    Background,
    Mark,
    Scene,
    Shape,
    Texture,
    relation,
)

MARGIN = 1 / 16  # the usual centre crop of 224 out of 256 still shows every object whole
GAP = 0.03  # between the circles around two objects of an easy scene
# Corners reach further than a round edge for the same area, so equal sizes look equal.
REACH = {"circle": 0.85, "square": 1.0, "triangle": 1.12, "star": 1.15, "cross": 1.0}
TILT = np.pi / 14  # more would turn a cross into an x and a square into a diamond

EASY_RADIUS = {"small": 0.115, "large": 0.19}  # in picture sides
HARD_RADIUS = {"small": 0.085, "large": 0.17}

MOST = 5  # objects of a hard scene; there are at least three
NEAREST = 0.75  # distance of two centres, in sums of their radii; below 1 one may hide the other
VISIBLE = 0.6  # smallest visible share of an object
SIGHT = 64  # pixels along a side at which that share is counted, for pictures of any size
TEXTURED = 0.7  # share of objects with a texture
COLOURFUL = 0.6  # share of marks in an object's colour


def random_scene(rng: np.random.Generator) -> Scene:
    """An easy scene: two or three plain objects, apart, each pair in a clear relation."""
    count = int(rng.integers(2, 4))
    while (shapes := _shapes(count, rng, hard=False)) is None:
        continue
    # Greyish, so that no background is mistaken for an object's colour, light or dark.
    lightness = rng.uniform(0.2, 0.9)
    first = np.clip(lightness + rng.uniform(-0.05, 0.05, 3), 0, 1)
    second = np.clip(first + rng.choice([-1, 1]) * rng.uniform(0.08, 0.2), 0.12, 0.97)
    second = np.clip(second + rng.uniform(-0.03, 0.03, 3), 0, 1)
    return Scene(shapes, _background(BACKDROPS, first, second, rng))


def random_hard_scene(rng: np.random.Generator) -> Scene:
    """A hard scene: three to five objects among clutter, at least one pair in a clear relation.

    At least the share `VISIBLE` of every object can be seen.
    """
    while True:
        if (shapes := _shapes(int(rng.integers(3, MOST + 1)), rng, hard=True)) is None:
            continue
        # Two tinted colours, which differ more than those of easy scenes.
        first = rng.uniform(0.25, 0.8) + rng.uniform(-0.12, 0.12, 3)
        second = first + rng.choice([-1, 1]) * rng.uniform(0.1, 0.3) + rng.uniform(-0.08, 0.08, 3)
        first, second = np.clip(first, 0, 1), np.clip(second, 0.05, 0.97)
        background = _background((*PATTERNS, "clouds", "glow"), first, second, rng)
        clutter = tuple(_mark(rng) for _ in range(rng.integers(3, 9)))
        scene = Scene(shapes, background, clutter)
        if any(relation(*pair, CLEAR) for pair in combinations(shapes, 2)) and all(
            seen.sum() >= VISIBLE * mask(shape, SIGHT).sum()
            for seen, shape in zip(visible_masks(scene, SIGHT), shapes, strict=True)
        ):
            return scene


def _shapes(count: int, rng: np.random.Generator, hard: bool) -> tuple[Shape, ...] | None:
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
    radius, jitter = (HARD_RADIUS, 0.2) if hard else (EASY_RADIUS, 0.06)
    factors = 1 + jitter * rng.uniform(-1, 1, count)
    radii = factors * [radius[size] * REACH[kind] for kind, _, size in named]
    reach = radii + MARGIN
    tries = rng.uniform(reach[:, None], 1 - reach[:, None], (200, count, 2))
    good = np.ones(len(tries), dtype=bool)
    for one, other in combinations(range(count), 2):
        both, apart = radii[one] + radii[other], np.abs(tries[:, one] - tries[:, other])
        distance, is_clear = np.hypot(*apart.T), apart.max(1) > CLEAR * apart.min(1)
        good &= distance > NEAREST * both if hard else (distance > both + GAP) & is_clear
    if not good.any():
        return None
    shapes = []
    for names, (x, y), size in zip(named, tries[good.argmax()].tolist(), radii, strict=True):
        angle = rng.uniform(-TILT, TILT)
        texture = _texture(rng) if hard and rng.random() < TEXTURED else None
        shapes.append(Shape(*names, x, y, float(size), angle, texture))
    return tuple(shapes)


def _background(
    patterns: Sequence[str], first: np.ndarray, second: np.ndarray, rng: np.random.Generator
) -> Background:
    pattern, angle = str(rng.choice(patterns)), rng.uniform(0, 2 * np.pi)
    return Background(pattern, _rgb(first), _rgb(second), angle, int(rng.integers(2**31)))


def _texture(rng: np.random.Generator) -> Texture:
    return Texture(
        pattern=str(rng.choice(PATTERNS)),
        shade=float(rng.choice([-1, 1]) * rng.uniform(0.25, 0.45)),
        waves=rng.uniform(9, 18),
        angle=rng.uniform(0, 2 * np.pi),
        seed=int(rng.integers(2**31)),
    )


def _mark(rng: np.random.Generator) -> Mark:
    """A mark; those in front are lines, curves and small blobs."""
    kind = str(rng.choice(MARKS))
    grey = rng.uniform(0.1, 0.9) + rng.uniform(-0.1, 0.1, 3)
    colour = np.array(RGB[str(rng.choice(COLOURS))]) / 255 if rng.random() < COLOURFUL else grey
    return Mark(
        kind=kind,
        colour=_rgb(np.clip(colour, 0, 1)),
        x=rng.uniform(0, 1),
        y=rng.uniform(0, 1),
        reach=rng.uniform(0.12, 0.5) if kind in ("line", "curve") else rng.uniform(0.04, 0.09),
        width=0.0 if kind == "blob" else rng.uniform(0.01, 0.022),
        angle=rng.uniform(-0.5, 0.5) if kind == "letter" else rng.uniform(0, 2 * np.pi),
        seed=int(rng.integers(2**31)),
        in_front=bool(kind != "letter" and rng.random() < 0.4),
    )


def _rgb(colour: np.ndarray) -> tuple[float, float, float]:
    red, green, blue = colour.tolist()
    return red, green, blue
