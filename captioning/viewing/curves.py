"""Curves as SVG, coloured by the page's style sheet, which suits light and dark themes.

Its classes are grid, axis, line, point and best.
"""

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from matplotlib.ticker import MaxNLocator

WIDTH, HEIGHT = 320, 150
LEFT, RIGHT, TOP, BOTTOM = 38, 10, 10, 22
"""Margins around the curve, for the numbers, in units of the drawing."""

FLAT = 1e-3  # relative spread below which the vertical axis spans a fifth of the values' size


class Point(NamedTuple):
    """A score or a loss after a number of epochs."""

    epoch: float
    value: float


def curve(name: str, points: Sequence[Point], best: float | None = None) -> str:
    """An <svg> of a curve over epochs, with a tooltip for each point.

    Args:
        name: of the values.
        points: ordered by epoch; values that are not finite are left out.
        best: the epoch to mark.
    """
    shown = [point for point in points if math.isfinite(point.value)]
    start = f'<svg class="curve" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"'
    if not shown:
        return f'{start} aria-label="{escape(name)}: no values yet"></svg>'
    values = [point.value for point in shown]
    low, high = min(values), max(values)
    if high - low <= FLAT * max(abs(low), abs(high)):  # otherwise all ticks look the same
        room = max(abs(low), abs(high)) / 10 or 1.0
        low, high = low - room, high + room
    heights = [float(tick) for tick in MaxNLocator(4).tick_values(low, high)]
    first, last = shown[0].epoch, shown[-1].epoch
    across = MaxNLocator(6, integer=True).tick_values(first, last)
    places = [float(tick) for tick in across if first <= tick <= last]

    def x(epoch: float) -> float:
        share = (epoch - first) / (last - first) if last > first else 0.5
        return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)

    def y(value: float) -> float:
        share = (value - heights[0]) / (heights[-1] - heights[0])
        return round(HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM), 1)

    lines = [
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(tick)}" y2="{y(tick)}"/>'
        f'<text class="axis" x="{LEFT - 6}" y="{y(tick) + 3}" text-anchor="end">{tick:g}</text>'
        for tick in heights
    ]
    lines += [
        f'<text class="axis" x="{x(tick)}" y="{HEIGHT - 6}" text-anchor="middle">{tick:g}</text>'
        for tick in places
    ]
    path = " ".join(f"{x(epoch)},{y(value)}" for epoch, value in shown)
    lines += [
        f'<text class="axis" x="{LEFT - 6}" y="{HEIGHT - 6}" text-anchor="end">epoch</text>',
        f'<polyline class="line" points="{path}"/>',
    ]
    for epoch, value in shown:
        kind = "point best" if epoch == best else "point"
        lines.append(
            f'<g class="{kind}"><circle class="near" cx="{x(epoch)}" cy="{y(value)}" r="9"/>'
            f'<circle class="dot" cx="{x(epoch)}" cy="{y(value)}" r="3"/>'
            f"<title>epoch {epoch_text(epoch)}: {value:.4f}</title></g>"
        )
    label = f"{escape(name)}: {shown[-1].value:.4f} after epoch {epoch_text(last)}"
    return f'{start} aria-label="{label}">{"".join(lines)}</svg>'


def epoch_text(epoch: float) -> str:
    """Such as ``3`` or, within an epoch, ``2.5``."""
    return f"{round(epoch, 2):g}"
