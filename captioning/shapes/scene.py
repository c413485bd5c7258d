"""Scenes of objects with positions, attributes and relations."""

from dataclasses import dataclass

KINDS = ("circle", "square", "triangle", "star", "cross")
COLOURS = ("red", "green", "blue", "yellow", "purple", "orange")
SIZES = ("small", "large")
BACKDROPS = ("flat", "gradient", "glow", "clouds", "stripes")

CLEAR = 1.5  # smallest ratio of the two axes' distances at which captions state a relation


@dataclass(frozen=True)
class Shape:
    """One object. Coordinates are in picture sides from the upper left corner."""

    kind: str  # one of `KINDS`
    colour: str  # one of `COLOURS`
    size: str  # one of `SIZES`
    x: float  # of its centre
    y: float
    radius: float  # of the circle around it, in picture sides
    angle: float = 0.0  # clockwise tilt in radians


@dataclass(frozen=True)
class Background:
    """Two muted colours, RGB from 0 to 1, in a pattern behind the objects."""

    pattern: str  # one of `BACKDROPS`
    first: tuple[float, float, float]
    second: tuple[float, float, float]  # not in a flat background
    angle: float  # direction of a gradient or of stripes, in radians
    seed: int  # of the noise of clouds and of the position of a glow


@dataclass(frozen=True)
class Scene:
    """Objects on a background; no two of them share kind, colour and size."""

    shapes: tuple[Shape, ...]
    background: Background


def relation(first: Shape, second: Shape, clear: float = 1.0) -> str | None:
    """Where the first shape lies, seen from the second: "left", "right", "above" or "below".

    It is the direction along the axis with the larger distance of the centres. None if this is not
    more than `clear` times the distance along the other axis.
    """
    across, down = first.x - second.x, first.y - second.y
    if abs(across) > clear * abs(down):
        return "left" if across < 0 else "right"
    if abs(down) > clear * abs(across):
        return "above" if down < 0 else "below"
    return None
