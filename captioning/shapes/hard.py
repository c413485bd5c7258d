"""Hard scenes: more objects, textured and partly hidden, among clutter, on busy backgrounds."""

from dataclasses import replace

import numpy as np

from captioning.shapes.clutter import MARKS
from captioning.shapes.drawing import RGB, mask, visible_masks
from captioning.shapes.scene import (
    CLEAR,
    COLOURS,
    KINDS,
    MARGIN,
    REACH,
    SIZES,
    TILT,
    Background,
    Mark,
    Scene,
    Shape,
    Texture,
    relation,
)
from captioning.shapes.textures import PATTERNS

MOST = 5
"""Objects of a scene; the fewest are three."""

RADIUS = {"small": 0.085, "large": 0.17}
RADIUS_JITTER = 0.2
NEAREST = 0.75
"""The smallest distance of two centres, in sums of their radii: below 1 one may hide the other."""

VISIBLE = 0.6
"""The share of an object that can be seen at least."""

SIGHT = 64
"""Pixels along a picture's side by which that share is counted, whatever size it is drawn in."""

TEXTURED = 0.7
"""The share of objects with a texture."""

COLOURFUL = 0.6
"""The share of marks in a colour that objects have, too."""


def random_hard_scene(rng: np.random.Generator) -> Scene:
    """Three to five objects among clutter, at least a pair of them in a clear relation.

    Every object shows `VISIBLE` of itself or more. At most two are alike but for their size, so
    that a list of all remains short.
    """
    while True:
        count = int(rng.integers(3, MOST + 1))
        attributes = [
            (str(rng.choice(KINDS)), str(rng.choice(COLOURS)), str(rng.choice(SIZES)))
            for _ in range(count)
        ]
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
    """Objects with these kinds, colours and sizes; none if many random places do not fit."""
    jitter = 1 + RADIUS_JITTER * rng.uniform(-1, 1, len(attributes))
    radii = jitter * [RADIUS[size] * REACH[kind] for kind, _, size in attributes]
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
    """Two tinted colours, further apart than those of the easy scenes."""
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
