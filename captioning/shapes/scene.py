"""Scenes of objects with known places, attributes and relations."""

from dataclasses import dataclass

KINDS = ("circle", "square", "triangle", "star", "cross")
COLOURS = ("red", "green", "blue", "yellow", "purple", "orange")
SIZES = ("small", "large")
BACKDROPS = ("flat", "gradient", "glow", "clouds", "stripes")
MARKS = ("line", "curve", "blob", "letter")

CLEAR = 1.5  # smallest ratio of the two axes' distances at which captions state a relation


@dataclass(frozen=True)
class Texture:
    """A lighter or darker pattern on an object.

    Args:
        pattern: one of `captioning.shapes.patterns.PATTERNS`.
        shade: how much lighter or darker, from -1 (black) to 1 (white).
        waves: repeats of the pattern along the picture's side.
        angle: its direction in radians.
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
        texture: its pattern; None for a plain object.
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
    """Two muted colours in a pattern, behind the objects.

    Args:
        pattern: one of `BACKDROPS` or of `captioning.shapes.patterns.PATTERNS`.
        first: RGB, each 0 to 1.
        second: RGB, each 0 to 1; a flat background does not use it.
        angle: direction of a gradient or of stripes, in radians.
        seed: of the noise of clouds and of the place of a glow.
    """

    pattern: str
    first: tuple[float, float, float]
    second: tuple[float, float, float]
    angle: float
    seed: int


@dataclass(frozen=True)
class Mark:
    """A piece of clutter, which captions do not mention.

    Args:
        kind: one of `MARKS`.
        colour: RGB, each 0 to 1.
        x: centre, as a fraction of the picture's width from its left edge.
        y: centre, as a fraction of the picture's height from its top edge.
        reach: from the centre to its ends, as a fraction of the picture's side.
        width: of its stroke, as a fraction of the picture's side; 0 for a blob.
        angle: clockwise turn in radians.
        seed: of its form.
        in_front: whether it covers the objects; otherwise they cover it.
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
        background: the background.
        clutter: marks; a later one covers earlier ones.
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
