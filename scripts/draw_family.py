#!/usr/bin/env python
"""Draws how the members of the family compare on drawn scenes, one dot per training.

scripts/draw_family.py docs/family_on_shapes.csv docs/family_on_shapes.png
"""

import argparse
import csv
import sys
from pathlib import Path

from matplotlib.figure import Figure

MEASURES = {
    "right": "captions right, %",
    "pointing": "pointing",
    "mass": "mass in box,\ntimes even",
    "minutes": "CPU minutes\nof training",
}
"""The columns that are drawn, with the titles of their panels."""


def drawn(rows: list[dict[str, str]]) -> Figure:
    """A panel for each measure, with a line for each decoder.

    Args:
        rows: one for each training, with its decoder and its measures.
    """
    decoders = list(dict.fromkeys(row["decoder"] for row in rows))
    figure = Figure(figsize=(9.5, 0.9 + 0.42 * len(decoders)), dpi=120, layout="constrained")
    panels = figure.subplots(1, len(MEASURES), sharey=True)
    for panel, (measure, title) in zip(panels, MEASURES.items(), strict=True):
        for place, decoder in enumerate(decoders):
            values = [float(row[measure]) for row in rows if row["decoder"] == decoder]
            panel.scatter(values, [place] * len(values), s=30, color="#1f6f8b", alpha=0.75, lw=0)
            panel.scatter(sum(values) / len(values), place, s=220, marker="|", color="black")
        panel.set_title(title, fontsize=10)
        panel.grid(axis="x", color="0.9")
        panel.set_axisbelow(True)
        panel.spines[["top", "right", "left"]].set_visible(False)
        panel.tick_params(axis="y", length=0)
    panels[0].set_yticks(range(len(decoders)), decoders)
    panels[0].set_ylim(len(decoders) - 0.5, -0.5)
    return figure


def main(args: list[str] | None = None) -> int:
    """Draw the table of one file into another."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("table", type=Path, help="CSV with a line for each training")
    parser.add_argument("picture", type=Path, help="PNG to write")
    options = parser.parse_args(args)
    with options.table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    drawn(rows).savefig(options.picture)
    return 0


if __name__ == "__main__":
    sys.exit(main())
