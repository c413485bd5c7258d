"""A plot of rank correlations with people's ratings: a dot and an interval per metric."""

from pathlib import Path

from matplotlib.figure import Figure

from captioning.evaluation.agreement import VARIANTS, Agreement
from captioning.files import written_whole
from captioning.metrics.scores import LEVEL

DOTS_PER_INCH = 150
WIDTH, ROW, FRAME = 6.4, 0.42, 1.5
"""Inches: the width, the height of a metric, and the height of title, axis and legend."""

COLOURS = {"b": "#b35806", "c": "#2b5c8a"}
MARKERS = {"b": "s", "c": "o"}
OFFSET = 0.14


def draw(agreement: Agreement) -> Figure:
    """The metrics from top to bottom as in the table, each with tau-b and tau-c."""
    names = list(agreement.taus)
    figure = Figure(figsize=(WIDTH, FRAME + ROW * len(names)), layout="constrained")
    axes = figure.add_subplot()
    for variant, offset in zip(VARIANTS, (-OFFSET, OFFSET), strict=True):
        colour = COLOURS[variant]
        # An empty plot, so that the legend has every variant.
        axes.plot([], [], MARKERS[variant], color=colour, label=f"tau-{variant}")
        for row, name in enumerate(names):
            value, interval = agreement.taus[name][variant]
            if value is None:
                continue
            if interval is not None:
                axes.plot(interval, [row + offset] * 2, color=colour, linewidth=1.6, alpha=0.6)
            axes.plot([value], [row + offset], MARKERS[variant], color=colour, markersize=5)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlabel(f"Kendall's tau, {LEVEL * 100:.0f} % interval over images")
    counts = f"{agreement.ratings:,} ratings of {agreement.pairs:,} captions"
    axes.set_title(f"{counts} of {agreement.images:,} images", fontsize=10)
    axes.axvline(0, color="0.6", linewidth=0.8)
    axes.grid(axis="x", color="0.9")
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    figure.legend(frameon=False, ncols=2, loc="outside lower center")
    return figure


def save(agreement: Agreement, path: str | Path) -> None:
    """Write the plot as a PNG file.

    Raises:
        InputError: the file cannot be written.
    """
    figure = draw(agreement)
    with written_whole(path) as temporary:
        figure.savefig(temporary, format="png", dpi=DOTS_PER_INCH)
