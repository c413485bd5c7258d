"""Grounding of each map of attention of a model that has several: their reports, side by side."""

from collections.abc import Mapping, Sequence
from typing import Any

from captioning.evaluation.grounding.estimates import Estimate
from captioning.evaluation.grounding.grounding_report import GroundingReport
from captioning.evaluation.grounding.looks import IN_BOX, MEASURES, POINTING, UNIFORM


def heads_table(reports: Mapping[str, GroundingReport]) -> str:
    """A line for each map, the best at pointing first, and one for uniform attention."""
    ranked = sorted(reports.items(), key=lambda item: -item[1].all.value(POINTING))
    width = max(len(name) for name in (*reports, UNIFORM))
    lines = [f"{'map':{width}}  {POINTING:>28}  {IN_BOX:>28}"]
    for name, report in ranked:
        lines.append(_line(name, width, [report.all.scores.get(m) for m in MEASURES[:2]]))
    uniform = ranked[0][1].all.scores
    lines.append(_line(UNIFORM, width, [uniform.get(f"{m}, {UNIFORM}") for m in MEASURES[:2]]))
    return "\n".join(lines)


def heads_json(reports: Mapping[str, GroundingReport]) -> dict[str, Any]:
    """The scores of all looks of each map, as plain values."""
    return {name: report.all.as_json() for name, report in reports.items()}


def _line(name: str, width: int, estimates: Sequence[Estimate | None]) -> str:
    return f"{name:{width}}  " + "  ".join(f"{_shown(each):>28}" for each in estimates)


def _shown(estimate: Estimate | None) -> str:
    if estimate is None:
        return "-"
    low, high = estimate.interval
    return f"{estimate.value:.3f} ({low:.3f} to {high:.3f})"
