"""Pictures of reports: grounding scores, the best and worst mentions, and calibration."""

import math
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from captioning.data.framing import jpeg
from captioning.data.images import MAX_PIXELS, read_image, read_reduced_photo
from captioning.data.records import Record
from captioning.evaluation.calibration_report import CalibrationReport, Reliability
from captioning.evaluation.grounding import GroundedMention, GroundingReport
from captioning.evaluation.grounding.targets import MEASURES
from captioning.evaluation.report import Report
from captioning.files import written_whole
from captioning.viewing import viewer
from captioning.viewing.html_document import save_html
from captioning.viewing.overlay import DOTS_PER_INCH, drawable, word_panels

WORDS = 12
"""Number of most frequent words in the plot of scores."""

MENTIONS, COLUMNS = 8, 4
"""Number of mentions, and of columns, in the pictures of the best and the worst mentions."""

PLOT_COLOURS = {"model": "#31688e", "uniform": "#c2410c", "Gaussian": "#4d7c0f"}
MARKERS = {"uniform": "|", "Gaussian": "x"}
BOX_COLOUR = "#7df9ff"
MODEL_COLOUR, REFERENCE_COLOUR = "#2b5c8a", "0.6"


def save_grounding(
    report: GroundingReport, folder: str | Path, max_pixels: int = MAX_PIXELS
) -> list[Path]:
    """Write scores.png, best.png and worst.png; returns their paths, none without mentions.

    The best mentions have the largest gain of mass in the box over a uniform map; each photo is
    shown once.

    Args:
        report: the grounding report.
        folder: the folder of the files.
        max_pixels: larger photos are rejected.

    Raises:
        InputError: a photo cannot be read, or the folder cannot be written to.
    """
    if not report.mentions:
        return []
    figures = {
        Path(folder) / "scores.png": draw_scores(report),
        Path(folder) / "best.png": draw_mentions(report.ranked()[:MENTIONS], max_pixels),
        Path(folder) / "worst.png": draw_mentions(report.ranked(worst=True)[:MENTIONS], max_pixels),
    }
    for path, figure in figures.items():
        _save(figure, path)
    return list(figures)


def draw_scores(report: GroundingReport) -> Figure:
    """Draw a panel per measure: bars with intervals for the model, markers for the baselines."""
    groups = {"all": report} | dict(islice(report.words.items(), WORDS))
    positions = np.arange(len(groups))
    figure = Figure(figsize=(10, 1.2 + 0.32 * len(groups)), layout="constrained")
    panels = figure.subplots(1, len(MEASURES), sharey=True)
    for axes, measure in zip(panels, MEASURES, strict=True):
        values = np.nan_to_num([group.value(measure) for group in groups.values()])
        axes.barh(positions, values, color=PLOT_COLOURS["model"], height=0.7, label="model")
        for position, group in enumerate(groups.values()):
            if measure in group.scores:
                _, low, high = group.scores[measure]
                axes.plot((low, high), (position, position), color="black", linewidth=1)
        for source, marker in MARKERS.items():
            baseline = [group.value(measure, source) for group in groups.values()]
            style = {"marker": marker, "color": PLOT_COLOURS[source], "zorder": 3, "clip_on": False}
            axes.scatter(baseline, positions, 60, label=source, **style)
        axes.set(xlim=(0, 1), title=measure)
        axes.set_xticks((0, 0.5, 1), ("0", "0.5", "1"))
        axes.spines[["top", "right"]].set_visible(False)
    labels, families = drawable(
        [f"{word} ({len(group.mentions)})" for word, group in groups.items()]
    )
    panels[0].set_yticks(positions, labels, fontfamily=families, parse_math=False)
    panels[0].invert_yaxis()
    handles, legend_labels = panels[0].get_legend_handles_labels()
    figure.legend(
        handles,
        legend_labels,
        loc="outside lower center",
        ncols=3,
        frameon=False,
        reverse=True,
    )
    return figure


def draw_mentions(mentions: Sequence[GroundedMention], max_pixels: int = MAX_PIXELS) -> Figure:
    """Draw a panel per mention: the map on the photo, the boxes, the word and the mass in them."""
    columns = min(COLUMNS, len(mentions))
    rows = math.ceil(len(mentions) / columns)
    figure = Figure(figsize=(3 * columns, 3.2 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).flatten()
    for axes in panels:
        axes.set_axis_off()
    for axes, mention in zip(panels, mentions, strict=False):
        photo = read_reduced_photo(mention.image, None, max_pixels)
        target = mention.target
        _, picture = word_panels(photo, mention.weights[None], target.crop, target.cell_offset)
        width, height = photo.size
        axes.imshow(picture, extent=(0, width, height, 0))
        for left, top, *size in target.boxes:
            box = Rectangle((left, top), *size, fill=False, edgecolor=BOX_COLOUR, linewidth=1.5)
            axes.add_patch(box)
        [name], families = drawable([mention.mention.name])
        mass, area = mention.values["mass in box"], mention.values["mass in box, uniform"]
        title = f"{name}: {mass:.2f} of the map\nin {area:.2f} of the view"
        axes.set_title(title, fontsize=9, fontfamily=families, parse_math=False)
    return figure


def save_examples(
    path: str | Path, records: Sequence[Record], *, before: Report, after: Report
) -> None:
    """Write a page of photos with captions before and after a training, and references.

    Photos are sorted by their CIDEr after the training, from low to high.
    """
    cards = []
    for index in after.worst():
        record, score = records[index], after.images["CIDEr"][index]
        name, caption = record.image.name, after.captions[record.image_id]
        caption_before = before.captions[record.image_id]
        notes = []
        if caption_before != caption:
            notes.append(f"before: {caption_before}")
        notes += [f"people: {text}" for text in record.captions]
        notes.append(f"{name} · CIDEr {score:.2f} now")
        thumbnail = jpeg(read_image(record.image), viewer.THUMBNAIL)
        cards.append(viewer.PhotoCard(name, thumbnail, caption, notes, score))
    orders = {"lowest": "lowest CIDEr first", "highest": "highest CIDEr first"}
    save_html(viewer.index_html(cards, f"{len(records):,} photos", orders), path)


def save_calibration(report: CalibrationReport, path: str | Path) -> None:
    """Write a PNG file with reliability diagrams of captions and of words, and risk over coverage.

    Raises:
        InputError: the file cannot be written.
    """
    figure = Figure(figsize=(9.6, 3.8), layout="constrained")
    panels = captions, words, risk = figure.subplots(1, 3)
    _draw_reliability(captions, report.captions, "Captions")
    captions.set(xlabel="confidence", ylabel="share that is good")
    _draw_reliability(words, report.words, "Words")
    words.set(xlabel="probability", ylabel="share that is right")
    _draw_risk(risk, report.captions)
    for axes in panels:
        axes.set(xlim=(0, 1), ylim=(0, None if axes is risk else 1), box_aspect=1)
        axes.grid(color="0.92")
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower right", ncols=3, frameon=False, fontsize=9)
    _save(figure, path)


def _draw_reliability(axes: Axes, reliability: Reliability, title: str) -> None:
    """Draw the share of true outcomes over the probability; a dot's area is the bin's count."""
    means, shares, counts = (np.array(column) for column in zip(*reliability.bins, strict=True))
    dot_areas = 12 + 160 * counts / counts.sum()
    axes.plot([0, 1], [0, 1], color=REFERENCE_COLOUR, linewidth=1, linestyle="--")
    axes.plot(means, shares, color=MODEL_COLOUR, linewidth=1.2)
    axes.scatter(means, shares, dot_areas, color=MODEL_COLOUR, clip_on=False)
    axes.set_title(f"{title}: calibration error {reliability.error:.3f}", fontsize=10)


def _draw_risk(axes: Axes, reliability: Reliability) -> None:
    area, best_area, random_area = reliability.areas
    risks = reliability.risks
    coverage = np.arange(1, len(risks) + 1) / len(risks)
    lowest_risks = (coverage - 1 + random_area).clip(0) / coverage
    random_style: Any = {"color": REFERENCE_COLOUR, "linewidth": 1, "linestyle": "--"}
    axes.axhline(random_area, label=f"random {random_area:.2f}", **random_style)
    axes.plot(coverage, risks, color=MODEL_COLOUR, label=f"by confidence {area:.2f}")
    axes.plot(coverage, lowest_risks, color=REFERENCE_COLOUR, label=f"best {best_area:.2f}")
    axes.set(xlabel="share of photos, surest first", ylabel="share that is not good")
    axes.set_title("Risk over coverage", fontsize=10)


def _save(figure: Figure, path: str | Path) -> None:
    with written_whole(path) as temporary:
        figure.savefig(temporary, format="png", dpi=DOTS_PER_INCH)
