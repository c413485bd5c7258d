"""One page about a training: its curves, and its captions of the same few images over time."""

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import starmap
from string import Template
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
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

LEAST = 0.004  # length of an axis of values, whose labels have at most three decimals
COLOUR = "#d4622f"  # of curves; like the grey of their numbers, for pages in light and in dark


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
    end = max((point.epoch for points in (losses, *scores.values()) for point in points), default=1)
    cards = [_card(name, scores[name], end, best_epoch, name == best_name) for name in names]
    cards.append(_card("Training loss", losses, end))
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


def curve(points: Sequence[Point], best: float | None = None, end: float | None = None) -> str:
    """A line over epochs, with a ring at the best epoch, as the data URI of a picture.

    The axis of epochs goes from 0 to `end`, by default the last one. That of values ends at the
    ticks around them.
    """
    figure = Figure(figsize=(2.6, 1.5), dpi=200)
    axes = figure.add_axes((0.18, 0.24, 0.78, 0.7))  # in the same place for all scores
    epochs, values = np.array(points, dtype=float).reshape(-1, 2).T
    is_best, real = epochs == best, values[np.isfinite(values)]
    for marker, shown in ((".-", slice(None)), ("o", is_best)):
        axes.plot(epochs[shown], values[shown], marker, color=COLOUR, mfc="none", clip_on=False)
    low, high = (real.min(), real.max()) if real.size else (0.0, 1.0)
    ticks = MaxNLocator(5, steps=[1, 2, 5, 10]).tick_values(low, max(high, low + LEAST))
    axes.set(ylim=(ticks[0], ticks[-1]), yticks=ticks, xlim=(0, end or epochs.max(initial=1)))
    axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10], integer=True))
    axes.ticklabel_format(style="plain", useOffset=False)
    axes.set_xlabel("epoch", color="0.5", fontsize=8, labelpad=1)
    axes.tick_params(color="0.5", labelcolor="0.5", labelsize=8)
    axes.grid(axis="y", color="0.5", alpha=0.3)
    axes.spines[:].set_visible(False)
    content = io.BytesIO()
    figure.savefig(content, transparent=True)
    return f"data:image/png;base64,{base64.b64encode(content.getvalue()).decode()}"


def epoch_text(epoch: float) -> str:
    """Such as ``3`` or, within an epoch, ``2.5``."""
    return f"{round(epoch, 2):g}"


def _card(
    name: str, points: Sequence[Point], end: float, best: float | None = None, decides: bool = False
) -> str:
    """A curve below its name, its latest value and the change since the one before."""
    latest = f"{points[-1].value:.3f}" if points else "&#8211;"
    change = ""
    if len(points) > 1:
        difference = round(points[-1].value - points[-2].value, 3) + 0.0  # not -0.0
        signed = f"{difference:+.3f}".replace("-", "&#8722;")
        change = f'<span class="change">{signed}</span>'
    note = f"<small>best: epoch {epoch_text(best)}</small>" if decides and best is not None else ""
    return (
        f'<figure class="card"><figcaption><span class="name">{html_text(name)}</span>{note}'
        f'<span class="value">{latest}</span>{change}</figcaption>'
        f'<img class="curve" src="{curve(points, best, end)}" alt="{html_text(name)} by epoch">'
        "</figure>"
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
        f'<section class="card example" id="image-{number}"><h2>{html_text(image.name)}</h2>'
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
