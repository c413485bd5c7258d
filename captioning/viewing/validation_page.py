"""One page about a training: its curves, and its captions of the same few images over time.

Like the view of one photo, it is one file that loads nothing else; see `viewer`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import starmap
from string import Template

from PIL import Image

from captioning.viewing import viewer
from captioning.viewing.curves import Point, curve, epoch_text
from captioning.viewing.overlay import LONG_SIDE
from captioning.viewing.viewer import CaptionView, html_text, script_json

THUMBNAIL = 240  # pixels of the longer side of a photo in the overview

FIRST = ("CIDEr", "BLEU-4", "ROUGE-L", "METEOR", "SPICE", "pointing", "CHAIR-i")
"""The scores with a curve; the table has all scores."""

NO_WORDS = "(no words)"


@dataclass(frozen=True)
class PastCaption:
    """An image's caption and its scores by name, in the validation after `epoch` epochs."""

    epoch: float
    caption: str
    scores: Mapping[str, float]


@dataclass(frozen=True)
class Example:
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
    caption: CaptionView
    references: Sequence[str]
    history: Sequence[PastCaption]


def html(
    title: str,
    summary: str,
    losses: Sequence[Point],
    scores: Mapping[str, Sequence[Point]],
    examples: Sequence[Example],
    best: tuple[str, float] | None = None,
) -> str:
    """The whole HTML document, all in ASCII.

    Args:
        title: the training's name.
        summary: one line about it.
        losses: the mean loss of each epoch.
        scores: the validation scores by name.
        examples: the images.
        best: the score that decides which epoch is best, and the best epoch.
    """
    best_name, best_epoch = best or ("", None)
    names = dict.fromkeys(name for name in (best_name, *FIRST) if name in scores)
    cards = [_card(name, scores[name], best_epoch, name == best_name) for name in names]
    cards.append(_card("Training loss", losses, None))
    styles = viewer.asset("viewer.css"), viewer.asset("validation_page.css")
    scripts = viewer.asset("viewer.js"), viewer.asset("validation_page.js")
    return Template(viewer.asset("validation_page.html")).substitute(
        policy=viewer.policy(styles, scripts),
        title=html_text(title),
        summary=html_text(summary),
        curves="".join(cards),
        scores=_score_table(scores),
        overview="".join(starmap(_link, enumerate(examples, 1))),
        examples="".join(starmap(_section, enumerate(examples, 1))),
        view_style=styles[0],
        style=styles[1],
        view_script=scripts[0],
        script=scripts[1],
    )


def _card(name: str, points: Sequence[Point], best: float | None, decides: bool = False) -> str:
    """A curve below its name, its latest value and the change since the one before."""
    latest = f"{points[-1].value:.3f}" if points else "\N{EN DASH}"
    change = ""
    if len(points) > 1:
        difference = points[-1].value - points[-2].value
        sign = "+" if difference >= 0 else "\N{MINUS SIGN}"
        change = f'<span class="change">{html_text(sign)}{abs(difference):.3f}</span>'
    note = f"<small>best: epoch {epoch_text(best)}</small>" if decides and best is not None else ""
    return (
        f'<figure class="card"><figcaption><span class="name">{html_text(name)}</span>{note}'
        f'<span class="value">{html_text(latest)}</span>{change}</figcaption>'
        f"{curve(name, points, best)}</figure>"
    )


def _score_table(scores: Mapping[str, Sequence[Point]]) -> str:
    """A row for each validation, the latest first, and a column for each score."""
    by_epoch: dict[float, dict[str, float]] = {}
    for name, points in scores.items():
        for point in points:
            by_epoch.setdefault(point.epoch, {})[name] = point.value
    head = "".join(f'<th scope="col">{html_text(name)}</th>' for name in scores)
    rows = "".join(
        f'<tr><th scope="row">{epoch_text(epoch)}</th>'
        + "".join(f"<td>{_number(values.get(name))}</td>" for name in scores)
        + "</tr>"
        for epoch, values in sorted(by_epoch.items(), reverse=True)
    )
    return f'<thead><tr><th scope="col">Epoch</th>{head}</tr></thead><tbody>{rows}</tbody>'


def _link(number: int, example: Example) -> str:
    return (
        f'<li><a href="#image-{number}"><img src="{viewer.jpeg(example.photo, THUMBNAIL)}" alt="">'
        f'<span dir="auto">{html_text(example.caption["caption"] or NO_WORDS)}</span></a></li>'
    )


def _section(number: int, example: Example) -> str:
    view = viewer.data(example.photo, [example.caption], "", LONG_SIDE)
    text = html_text(example.caption["caption"])
    references = "".join(f'<li dir="auto">{html_text(text)}</li>' for text in example.references)
    names = list(dict.fromkeys(name for told in example.history for name in told.scores))
    head = "".join(f'<th scope="col">{html_text(name)}</th>' for name in names)
    rows = ""
    for told in reversed(example.history):
        cells = "".join(
            f'<td data-name="{html_text(name)}">{_number(told.scores.get(name))}</td>'
            for name in names
        )
        rows += (
            f'<tr><th scope="row">{epoch_text(told.epoch)}</th><td class="caption" dir="auto">'
            f"{html_text(told.caption or NO_WORDS)}</td>{cells}</tr>"
        )
    return (
        f'<section class="example" id="image-{number}"><h2>{html_text(example.name)}</h2>'
        f'<div class="view"><noscript><p>{text}</p></noscript></div>'
        f'<script type="application/json">{script_json(view)}</script>'
        f'<div class="texts"><div><h3>What people wrote</h3><ul>{references}</ul></div>'
        f'<div><h3>What the model wrote</h3><div class="scrolled" tabindex="0">'
        f'<table class="history"><thead><tr><th scope="col">Epoch</th><th scope="col">Caption</th>'
        f"{head}</tr></thead><tbody>{rows}</tbody></table></div></div></div></section>"
    )


def _number(value: float | None) -> str:
    if value is None:
        return "&#8211;"
    return f"{value:.0f}" if value >= 100 or (value.is_integer() and value > 1) else f"{value:.3f}"
