"""A grounding report as lines of text."""

import math

from captioning.evaluation.grounding.estimates import (
    FALLS,
    GAINS,
    LOCALISED,
    TIMES,
    Estimate,
    Group,
    named,
)
from captioning.evaluation.grounding.grounding_report import GroundingReport
from captioning.evaluation.grounding.looks import (
    IN_BOX,
    IN_MASK,
    MEASURES,
    POINTING,
    SOURCES,
)
from captioning.metrics.scores import LEVEL
from captioning.terminal import printable

WORDS = 20
"""The most words in the table; the file has all."""


def table(report: GroundingReport) -> str:
    """A line for all words, each kind of object and the most frequent words, then the rest."""
    if not report.looks:
        return "\n".join(["no word names an object that is there", *_hallucination(report)])
    filled = [group for group in report.kinds if group.looks]
    rows = [_row(group) for group in (report.all, *filled, *report.words[:WORDS])]
    width = max(len(row[0]) for row in rows)
    lines = [
        f"{'':{width}} {'':>5}  {POINTING:>22}  {IN_BOX:>28}  {IN_MASK:>28}",
        f"{'word':{width}} {'n':>5}  "
        + "  ".join(
            " ".join(f"{title:>{size}}" for title, size in zip(titles, (5, 7, 8, 5), strict=False))
            for titles in (SOURCES, (*SOURCES, "times"), (*SOURCES, "times"))
        ),
    ]
    lines += [f"{name:{width}} {rest}" for name, rest in rows]
    if left := len(report.words) - WORDS:
        lines += [f"and {left} rarer words"] if left > 0 else []
    scores = report.all.scores
    lines.append("")
    for name in (*MEASURES, *GAINS.values(), *TIMES.values(), LOCALISED, *FALLS):
        if name in scores:
            lines.append(_line(name, scores[name]))
    lines += _hallucination(report)
    plain = {**report.f1, **report.whereabouts}
    lines += [f"{name:<44}{value:>8.3f}" for name, value in plain.items()]
    if report.unknown:
        lines.append(f"{'not tested, as the model lacks their words':<44}{report.unknown:>8}")
    lines.append(f"map of a word: {report.map_name}")
    lines.append(f"intervals: {LEVEL * 100:.0f} %, were the images drawn again")
    return "\n".join(lines)


def _row(group: Group) -> tuple[str, str]:
    """The name, and the numbers aligned with the header's columns."""
    parts = [f"{group.looks:>5}"]
    for measure in MEASURES:
        names = [named(measure, source) for source in SOURCES]
        numbers = [
            _number(group.value(name), size) for name, size in zip(names, (5, 7, 8), strict=True)
        ]
        if measure in TIMES:
            numbers.append(_number(group.value(TIMES[measure]), 5, digits=1))
        parts.append(" ".join(numbers))
    return printable(group.name), "  ".join(parts)


def _number(value: float, size: int, digits: int = 3) -> str:
    return f"{'-' if math.isnan(value) else f'{value:.{digits}f}':>{size}}"


def _line(name: str, estimate: Estimate) -> str:
    low, high = estimate.interval
    known = "" if math.isnan(low) else f"  {low:.3f} to {high:.3f}"
    return f"{name:<44}{estimate.value:>8.3f}{known}"


def _hallucination(report: GroundingReport) -> list[str]:
    lines = [_line(name, estimate) for name, estimate in report.hallucination.items()]
    if report.absent:
        words = ", ".join(
            printable(f"{word} {count}" if count > 1 else word)
            for word, count in report.absent.most_common(WORDS)
        )
        lines.append(f"named but not there: {words}")
    return lines
