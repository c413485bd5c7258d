"""One page about a training: its curves, and its captions of the same few images over time."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import starmap
from string import Template
from typing import NamedTuple

from matplotlib.ticker import MaxNLocator
from PIL import Image

from captioning.viewing import viewer
from captioning.viewing.html_document import asset, html_document, html_text, script_json
from captioning.viewing.overlay import LONG_SIDE

STYLES = (viewer.STYLE, "viewing/validation_page.css")
SCRIPTS = (viewer.SCRIPT, "viewing/validation_page.js")
THUMBNAIL = 240  # pixels of the longer side of a photo in the overview
NO_WORDS = "(no words)"

FIRST = ("CIDEr", "BLEU-4", "ROUGE-L", "METEOR", "SPICE", "pointing", "CHAIR-i")
"""The scores with a curve; the table has all scores."""

WIDTH, HEIGHT = 320, 150
LEFT, RIGHT, TOP, BOTTOM = 38, 10, 10, 22
"""Margins around a curve, for the numbers, in units of the drawing."""

FLAT = 1e-3  # relative spread below which the vertical axis spans a fifth of the values' size


class Point(NamedTuple):
    """A score or a loss after a number of epochs."""

    epoch: float
    value: float


@dataclass(frozen=True)
class PastCaption:
    """An image's caption and its scores by name, in the validation after `epoch` epochs."""

    epoch: float
    caption: str
    scores: Mapping[str, float]


@dataclass(frozen=True)
class TrackedImage:
    """An image of the page.

    Attributes:
        name: the photo's file name.
        photo: the photo, upright.
        caption: the latest one.
        references: captions by people.
        history: captions from the first validation to the latest.
    """

    name: str
    photo: Image.Image
    caption: viewer.CaptionView
    references: Sequence[str]
    history: Sequence[PastCaption]


def validation_html(
    title: str,
    summary: str,
    losses: Sequence[Point],
    scores: Mapping[str, Sequence[Point]],
    images: Sequence[TrackedImage],
    best: tuple[str, float] | None = None,
) -> str:
    """The page as one document.

    Args:
        title: the training's name.
        summary: one line about it.
        losses: the mean loss of each epoch.
        scores: the validation scores by name.
        images: the images.
        best: the score that decides which epoch is best, and the best epoch.
    """
    best_name, best_epoch = best or ("", None)
    names = dict.fromkeys(name for name in (best_name, *FIRST) if name in scores)
    cards = [_card(name, scores[name], best_epoch, name == best_name) for name in names]
    cards.append(_card("Training loss", losses, None))
    by_epoch: dict[float, dict[str, float]] = {}
    for name, points in scores.items():
        for point in points:
            by_epoch.setdefault(point.epoch, {})[name] = point.value
    rows = [(epoch, "", values) for epoch, values in sorted(by_epoch.items(), reverse=True)]
    body = Template(asset("viewing/validation_page.html")).substitute(
        title=html_text(title),
        summary=html_text(summary),
        curves="".join(cards),
        scores=_table(["Epoch", *scores], rows),
        overview="".join(starmap(_link, enumerate(images, 1))),
        images="".join(starmap(_section, enumerate(images, 1))),
    )
    return html_document(title, body, STYLES, SCRIPTS)


def curve(name: str, points: Sequence[Point], best: float | None = None) -> str:
    """An <svg> of a curve over epochs, with a tooltip for each point.

    Its classes are grid, axis, line, point and best; the style sheet gives them colours.

    Args:
        name: of the values.
        points: ordered by epoch; values that are not finite are left out.
        best: the epoch to mark.
    """
    shown = [point for point in points if math.isfinite(point.value)]
    start = f'<svg class="curve" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"'
    if not shown:
        return f'{start} aria-label="{html_text(name)}: no values yet"></svg>'
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

    def label(x: float | int, y: float | int, text: str, anchor: str = "end") -> str:
        return f'<text class="axis" x="{x}" y="{y}" text-anchor="{anchor}">{text}</text>'

    lines = [
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(tick)}" y2="{y(tick)}"/>'
        + label(LEFT - 6, y(tick) + 3, f"{tick:g}")
        for tick in heights
    ]
    lines += [label(x(tick), HEIGHT - 6, f"{tick:g}", "middle") for tick in places]
    path = " ".join(f"{x(epoch)},{y(value)}" for epoch, value in shown)
    lines += [label(LEFT - 6, HEIGHT - 6, "epoch"), f'<polyline class="line" points="{path}"/>']
    for epoch, value in shown:
        centre = f'cx="{x(epoch)}" cy="{y(value)}"'
        lines.append(
            f'<g class="point{" best" * (epoch == best)}"><circle class="near" {centre} r="9"/>'
            f'<circle class="dot" {centre} r="3"/>'
            f"<title>epoch {epoch_text(epoch)}: {value:.4f}</title></g>"
        )
    told = f"{html_text(name)}: {shown[-1].value:.4f} after epoch {epoch_text(last)}"
    return f'{start} aria-label="{told}">{"".join(lines)}</svg>'


def epoch_text(epoch: float) -> str:
    """Such as ``3`` or, within an epoch, ``2.5``."""
    return f"{round(epoch, 2):g}"


def _card(name: str, points: Sequence[Point], best: float | None, decides: bool = False) -> str:
    """A curve below its name, its latest value and the change since the one before."""
    latest = f"{points[-1].value:.3f}" if points else "&#8211;"
    change = ""
    if len(points) > 1:
        difference = points[-1].value - points[-2].value
        sign = "+" if difference >= 0 else "&#8722;"
        change = f'<span class="change">{sign}{abs(difference):.3f}</span>'
    note = f"<small>best: epoch {epoch_text(best)}</small>" if decides and best is not None else ""
    return (
        f'<figure class="card"><figcaption><span class="name">{html_text(name)}</span>{note}'
        f'<span class="value">{latest}</span>{change}</figcaption>'
        f"{curve(name, points, best)}</figure>"
    )


def _link(number: int, image: TrackedImage) -> str:
    return (
        f'<li><a href="#image-{number}"><img src="{viewer.jpeg(image.photo, THUMBNAIL)}" alt="">'
        f'<span dir="auto">{html_text(image.caption["caption"] or NO_WORDS)}</span></a></li>'
    )


def _section(number: int, image: TrackedImage) -> str:
    view = viewer.data(image.photo, [image.caption], "", LONG_SIDE)
    references = "".join(f'<li dir="auto">{html_text(text)}</li>' for text in image.references)
    names = dict.fromkeys(name for past in image.history for name in past.scores)
    rows = [
        (
            past.epoch,
            f'<td class="caption" dir="auto">{html_text(past.caption or NO_WORDS)}</td>',
            past.scores,
        )
        for past in reversed(image.history)
    ]
    return (
        f'<section class="example" id="image-{number}"><h2>{html_text(image.name)}</h2>'
        f'<div class="view"><noscript><p>{html_text(image.caption["caption"])}</p></noscript></div>'
        f'<script type="application/json">{script_json(view)}</script>'
        f'<div class="texts"><div><h3>What people wrote</h3><ul>{references}</ul></div>'
        f'<div><h3>What the model wrote</h3><div class="scrolled" tabindex="0">'
        f'<table class="history">{_table(["Epoch", "Caption", *names], rows)}</table>'
        f"</div></div></div></section>"
    )


def _table(columns: Sequence[str], rows: Sequence[tuple[float, str, Mapping[str, float]]]) -> str:
    """Rows of an epoch, further cells in HTML, and the scores that the last columns name."""
    head = "".join(f'<th scope="col">{html_text(name)}</th>' for name in columns)
    body = ""
    for epoch, cells, scores in rows:
        names = columns[1 + bool(cells) :]
        numbers = "".join(
            f'<td data-name="{html_text(name)}">{_number(scores.get(name))}</td>' for name in names
        )
        body += f'<tr><th scope="row">{epoch_text(epoch)}</th>{cells}{numbers}</tr>'
    return f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"


def _number(value: float | None) -> str:
    if value is None:
        return "&#8211;"
    return f"{value:.0f}" if value >= 100 or (value.is_integer() and value > 1) else f"{value:.3f}"
