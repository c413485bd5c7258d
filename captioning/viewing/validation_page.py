"""One page about a training: its curves, and its captions of the same few images over time."""

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from PIL import Image

from captioning.data.framing import jpeg
from captioning.viewing import viewer
from captioning.viewing.html_document import html_document
from captioning.viewing.overlay import DRAWN_SIDE

STYLES = (viewer.STYLE, "viewing/validation_page.css")
SCRIPTS = (viewer.SCRIPT, "viewing/validation_page.js")
OVERVIEW_SIDE = 240  # pixels of the longer side of a photo in the overview
NO_WORDS = "(no words)"

CURVES = ("CIDEr", "BLEU-4", "ROUGE-L", "METEOR", "pointing", "CHAIR-i")
"""The scores with a curve; the table has all scores."""

LEAST_RANGE = 0.004
"""The shortest axis of values, whose labels have at most three decimals."""

COLOUR = "#d4622f"
"""The colour of curves, which suits light and dark pages, as the grey of their numbers does."""


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
    """Return the page as one document.

    Args:
        title: the training's name.
        summary: one line about it.
        losses: the mean loss of each epoch.
        scores: the validation scores by name.
        images: the images.
        best: the score that decides which epoch is best, and the best epoch.
    """
    best_epoch = None if best is None else best[1]
    notes = {} if best is None else {best[0]: f"best: epoch {epoch_text(best[1])}"}
    end = max((point.epoch for points in (losses, *scores.values()) for point in points), default=1)
    curves = [
        (name, scores[name], curve(scores[name], best_epoch, end), notes.get(name))
        for name in dict.fromkeys((*notes, *CURVES))
        if name in scores
    ]
    curves.append(("Training loss", losses, curve(losses, end=end), None))
    epochs: dict[float, dict[str, float]] = {}
    for name, points in scores.items():
        for point in points:
            epochs.setdefault(point.epoch, {})[name] = point.value
    return html_document(
        "viewing/validation_page.html",
        title,
        STYLES,
        SCRIPTS,
        summary=summary,
        curves=curves,
        names=list(scores),
        epochs=[PastCaption(epoch, "", values) for epoch, values in sorted(epochs.items())],
        images=[
            (
                image,
                jpeg(image.photo, OVERVIEW_SIDE),
                viewer.data(image.photo, [image.caption], "", DRAWN_SIDE),
                [*dict.fromkeys(name for past in image.history for name in past.scores)],
            )
            for image in images
        ],
        no_words=NO_WORDS,
        epoch_text=epoch_text,
    )


def curve(points: Sequence[Point], best: float | None = None, end: float | None = None) -> str:
    """Draw a line over epochs, with a ring at the best epoch, as the data URI of a picture.

    The axis of epochs goes from 0 to `end`, by default the last one. The axis of values ends at the
    next ticks.
    """
    figure = Figure(figsize=(2.6, 1.5), dpi=200)
    axes = figure.add_axes((0.18, 0.24, 0.78, 0.7))  # in the same place for all scores
    epochs, values = np.array(points, dtype=float).reshape(-1, 2).T
    style: dict[str, Any] = {"color": COLOUR, "mfc": "none", "clip_on": False}
    axes.plot(epochs, values, ".-", **style)
    axes.plot(epochs[epochs == best], values[epochs == best], "o", **style)
    finite_values = values[np.isfinite(values)]
    low, high = (finite_values.min(), finite_values.max()) if finite_values.size else (0.0, 1.0)
    ticks = MaxNLocator(5, steps=[1, 2, 5, 10]).tick_values(low, max(high, low + LEAST_RANGE))
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
    """Format an epoch, such as ``3`` or, within an epoch, ``2.5``."""
    return f"{round(epoch, 2):g}"
