"""Random scenes: easy ones of plain objects, and hard ones of textured objects among clutter."""

from dataclasses import replace

import numpy as np

from captioning.shapes.drawing import RGB, mask, visible_masks
from captioning.shapes.patterns import PATTERNS
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

EASY_RADIUS = {"small": 0.115, "large": 0.19}
EASY_JITTER = 0.06
HARD_RADIUS = {"small": 0.085, "large": 0.17}
HARD_JITTER = 0.2

MOST = 5
"""The most objects of a hard scene; the fewest are three."""

NEAREST = 0.75
"""The smallest distance of two centres, in sums of their radii; below 1 one may hide the other."""

VISIBLE = 0.6
"""The smallest visible share of an object."""

SIGHT = 64
"""Pixels along a picture's side at which that share is counted, for pictures of any size."""

TEXTURED = 0.7
"""The share of objects with a texture."""

COLOURFUL = 0.6
"""The share of marks in an object's colour."""


def _attributes(count: int, rng: np.random.Generator) -> list[tuple[str, str, str]]:
    """Random kinds, colours and sizes."""
    return [
        (str(rng.choice(KINDS)), str(rng.choice(COLOURS)), str(rng.choice(SIZES)))
        for _ in range(count)
    ]


def random_scene(rng: np.random.Generator) -> Scene:
    """An easy scene: two or three plain objects, apart, each pair in a clear relation."""
    count = int(rng.integers(2, 4))
    while True:
        attributes = _attributes(count, rng)
        if len(set(attributes)) < count:
            continue
        jitter = 1 + EASY_JITTER * rng.uniform(-1, 1, count)
        radii = jitter * [EASY_RADIUS[size] * REACH[kind] for kind, _, size in attributes]
        centres = _apart(radii, rng)
        if centres is not None:
            break
    shapes = tuple(
        Shape(kind, colour, size, float(x), float(y), float(radius), float(angle))
        for (kind, colour, size), (x, y), radius, angle in zip(
            attributes, centres, radii, rng.uniform(-TILT, TILT, count), strict=True
        )
    )
    return Scene(shapes, _random_background(rng))


def _apart(radii: np.ndarray, rng: np.random.Generator) -> np.ndarray | None:
    """Centres (shapes, 2) that keep the shapes inside, apart and in clear relations.

    None if no random layout of many fits.
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
        pattern=str(rng.choice(BACKDROPS)),
        first=(float(first[0]), float(first[1]), float(first[2])),
        second=(float(second[0]), float(second[1]), float(second[2])),
        angle=float(rng.uniform(0, 2 * np.pi)),
        seed=int(rng.integers(2**31)),
    )


def random_hard_scene(rng: np.random.Generator) -> Scene:
    """A hard scene: three to five objects among clutter, at least one pair in a clear relation.

    At least the share `VISIBLE` of every object can be seen. At most two objects have the same kind
    and colour, so that a list of all remains short.
    """
    while True:
        count = int(rng.integers(3, MOST + 1))
        attributes = _attributes(count, rng)
        alike = len({(kind, colour) for kind, colour, _ in attributes})
        if len(set(attributes)) < count or alike < count - 1:
            continue
        shapes = _placed(attributes, rng)
        if shapes is None:
            continue
        scene = Scene(shapes, _busy_background(rng), _random_clutter(rng))
        pairs = [(one, other) for one in shapes for other in shapes if one is not other]
        if any(relation(one, other, CLEAR) for one, other in pairs) and _is_visible(scene):
            return scene


def _placed(
    attributes: list[tuple[str, str, str]], rng: np.random.Generator
) -> tuple[Shape, ...] | None:
    """Objects with these kinds, colours and sizes; None if no random places of many fit."""
    jitter = 1 + HARD_JITTER * rng.uniform(-1, 1, len(attributes))
    radii = jitter * [HARD_RADIUS[size] * REACH[kind] for kind, _, size in attributes]
    reach = radii + MARGIN
    tries = rng.uniform(reach[:, None], 1 - reach[:, None], (200, len(radii), 2))
    fits = np.ones(len(tries), dtype=bool)
    for second in range(len(radii)):
        for first in range(second):
            apart = np.hypot(*(tries[:, first] - tries[:, second]).T)
            fits &= apart > NEAREST * (radii[first] + radii[second])
    if not fits.any():
        return None
    return tuple(
        Shape(
            *named,
            x=float(x),
            y=float(y),
            radius=float(radius),
            angle=float(rng.uniform(-TILT, TILT)),
            texture=_random_texture(rng) if rng.random() < TEXTURED else None,
        )
        for named, (x, y), radius in zip(attributes, tries[fits.argmax()], radii, strict=True)
    )


def _is_visible(scene: Scene) -> bool:
    """Whether enough of every object can be seen."""
    seen = visible_masks(scene, SIGHT)
    wholes = (mask(shape, SIGHT) for shape in scene.shapes)
    return all(
        found.sum() >= VISIBLE * whole.sum() for found, whole in zip(seen, wholes, strict=True)
    )


def _random_texture(rng: np.random.Generator) -> Texture:
    return Texture(
        pattern=str(rng.choice(PATTERNS)),
        shade=float(rng.choice([-1, 1]) * rng.uniform(0.25, 0.45)),
        waves=float(rng.uniform(9, 18)),
        angle=float(rng.uniform(0, 2 * np.pi)),
        seed=int(rng.integers(2**31)),
    )


def _random_clutter(rng: np.random.Generator) -> tuple[Mark, ...]:
    """Three to eight marks; those in front are lines, curves and small blobs."""
    return tuple(_random_mark(rng) for _ in range(int(rng.integers(3, 9))))


def _random_mark(rng: np.random.Generator) -> Mark:
    kind = str(rng.choice(MARKS))
    grey = rng.uniform(0.1, 0.9) + rng.uniform(-0.1, 0.1, 3)
    colour = np.array(RGB[str(rng.choice(COLOURS))]) / 255 if rng.random() < COLOURFUL else grey
    red, green, blue = (float(channel) for channel in np.clip(colour, 0, 1))
    long = kind in ("line", "curve")
    found = Mark(
        kind=kind,
        colour=(red, green, blue),
        x=float(rng.uniform(0, 1)),
        y=float(rng.uniform(0, 1)),
        reach=float(rng.uniform(0.12, 0.5) if long else rng.uniform(0.04, 0.09)),
        width=0.0 if kind == "blob" else float(rng.uniform(0.01, 0.022)),
        angle=float(rng.uniform(-0.5, 0.5) if kind == "letter" else rng.uniform(0, 2 * np.pi)),
        seed=int(rng.integers(2**31)),
        in_front=False,
    )
    return replace(found, in_front=bool(kind != "letter" and rng.random() < 0.4))


def _busy_background(rng: np.random.Generator) -> Background:
    """Two tinted colours, which differ more than those of easy scenes."""
    first = rng.uniform(0.25, 0.8) + rng.uniform(-0.12, 0.12, 3)
    second = first + rng.choice([-1, 1]) * rng.uniform(0.1, 0.3) + rng.uniform(-0.08, 0.08, 3)
    first, second = np.clip(first, 0, 1), np.clip(second, 0.05, 0.97)
    return Background(
        pattern=str(rng.choice((*PATTERNS, "clouds", "glow"))),
        first=(float(first[0]), float(first[1]), float(first[2])),
        second=(float(second[0]), float(second[1]), float(second[2])),
        angle=float(rng.uniform(0, 2 * np.pi)),
        seed=int(rng.integers(2**31)),
    )
