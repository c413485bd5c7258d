"""A picture of how sure a captioner is and how often it is right: reliability, and risk."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from captioning.evaluation.calibration import CalibrationReport, Reliability
from captioning.files import written_whole

DOTS_PER_INCH = 150
SIZE = (9.6, 3.6)  # inches
OURS, OTHER = "#2b5c8a", "0.6"


def draw(report: CalibrationReport) -> Figure:
    """Reliability diagrams of captions and of words, and the curve of risk over coverage."""
    figure = Figure(figsize=SIZE, layout="constrained")
    captions, words, risk = figure.subplots(1, 3)
    _reliability(captions, report.captions, "Captions", "confidence", "share that is good")
    _reliability(words, report.words, "Words", "probability", "share that is right")
    _risk(risk, report.captions)
    for axes in (captions, words, risk):
        axes.grid(color="0.92")
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def save(report: CalibrationReport, path: str | Path) -> None:
    """Write the picture as a PNG file.

    Raises:
        InputError: the file cannot be written.
    """
    figure = draw(report)
    with written_whole(path) as temporary:
        figure.savefig(temporary, format="png", dpi=DOTS_PER_INCH)


def _reliability(axes: Axes, found: Reliability, title: str, given: str, came: str) -> None:
    """The share that came true over the probability, a dot per bin with an area by its number."""
    means, shares, counts = (np.array(column) for column in zip(*found.bins, strict=True))
    axes.plot([0, 1], [0, 1], color=OTHER, linewidth=1, linestyle="--")
    axes.plot(means, shares, color=OURS, linewidth=1.2)
    axes.scatter(means, shares, 12 + 160 * counts / counts.sum(), color=OURS)
    axes.set(xlim=(0, 1), ylim=(0, 1), xlabel=given, ylabel=came, aspect="equal")
    axes.set_title(f"{title}: calibration error {found.error:.3f}", fontsize=10)


def _risk(axes: Axes, found: Reliability) -> None:
    """The share of captions that are not good among the surest ones."""
    ours, best, random = found.areas
    coverage = np.arange(1, len(found.risks) + 1) / len(found.risks)
    axes.axhline(random, color=OTHER, linewidth=1, linestyle="--", label=f"random {random:.2f}")
    axes.plot(coverage, found.risks, color=OURS, label=f"by confidence {ours:.2f}")
    axes.plot(
        coverage, (coverage - 1 + random).clip(0) / coverage, color=OTHER, label=f"best {best:.2f}"
    )
    axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="share of photos, surest first")
    axes.set_ylabel("share of captions that are not good")
    axes.set_title("Risk over coverage", fontsize=10)
    axes.legend(frameon=False, fontsize=8)
