"""Grounding reports as text: a table of one map, and one that compares several."""

import math
from collections.abc import Mapping, Sequence

from captioning.evaluation.grounding.estimates import (
    ATTENDED,
    CENTRED,
    FAITHFULNESS,
    FALL_TIMES,
    FALLS,
    GAINS,
    LOCALISED,
    TIMES,
    Estimate,
    Group,
    by_image,
    named,
    with_intervals,
)
from captioning.evaluation.grounding.grounding_report import GroundingReport
from captioning.evaluation.grounding.looks import (
    GAUSSIAN,
    IN_BOX,
    IN_MASK,
    MEASURES,
    MODEL,
    POINTING,
    RANDOM,
    SOURCES,
    UNIFORM,
    Look,
)
from captioning.metrics.scores import LEVEL
from captioning.terminal import printable

WORDS = 20
"""The number of words in the table of a map; the file contains all."""

HEADER = ("pointing", "off middle", "mass", "times", "box", *FAITHFULNESS, "fall", "ms/word")
SIZES = tuple(max(len(title), 6) for title in HEADER)
DIGITS = (3, 3, 3, 3, 3, *(4 for _ in FAITHFULNESS), 4, 1)


def table(report: GroundingReport) -> str:
    """The report as text: a line for all looks, each kind of object and the most frequent words."""
    if not report.looks:
        return "\n".join(["no word names an object that is there", *_hallucination_lines(report)])
    filled = [group for group in report.kinds if group.looks]
    rows = [_row(group) for group in (report.all, *filled, *report.words[:WORDS])]
    width = max(len(name) for name, _ in rows)
    lines = [
        f"{'':{width}} {'':>5}  {POINTING:>22}  {IN_BOX:>28}  {IN_MASK:>28}",
        f"{'word':{width}} {'n':>5}  "
        + "  ".join(
            " ".join(f"{title:>{size}}" for title, size in zip(titles, (5, 7, 8, 5), strict=False))
            for titles in (SOURCES, (*SOURCES, "times"), (*SOURCES, "times"))
        ),
    ]
    lines += [f"{name:{width}} {numbers}" for name, numbers in rows]
    if (left := len(report.words) - WORDS) > 0:
        lines.append(f"and {left} rarer words")
    lines.append("")
    scores = report.all.scores
    for name in (*MEASURES, *GAINS.values(), *TIMES.values(), LOCALISED, *FALLS):
        if name in scores:
            lines.append(_line(name, scores[name]))
    lines += _hallucination_lines(report)
    lines += [f"{name:<44}{value:>8.3f}" for name, value in report.f1.items()]
    if report.unknown:
        lines.append(f"{'not tested, since the model lacks the word':<44}{report.unknown:>8}")
    lines.append(f"map: {report.map_name}")
    lines.append(f"intervals: {LEVEL * 100:.0f} %, bootstrap over images")
    return "\n".join(lines)


def _row(group: Group) -> tuple[str, str]:
    """The name, and the numbers aligned with the header's columns."""
    parts = [f"{group.looks:>5}"]
    for measure in MEASURES:
        names = [named(measure, source) for source in SOURCES]
        numbers = [
            _cell(group.value(name), size) for name, size in zip(names, (5, 7, 8), strict=True)
        ]
        if measure in TIMES:
            numbers.append(_cell(group.value(TIMES[measure]), 5, digits=1))
        parts.append(" ".join(numbers))
    return printable(group.name), "  ".join(parts)


def _line(name: str, estimate: Estimate) -> str:
    low, high = estimate.interval
    known = "" if math.isnan(low) else f"  {low:.3f} to {high:.3f}"
    return f"{name:<44}{estimate.value:>8.3f}{known}"


def _hallucination_lines(report: GroundingReport) -> list[str]:
    lines = [_line(name, estimate) for name, estimate in report.hallucination.items()]
    if report.absent:
        words = ", ".join(
            printable(f"{word} {count}" if count > 1 else word)
            for word, count in report.absent.most_common(WORDS)
        )
        lines.append(f"named but not there: {words}")
    return lines


def map_table(reports: Mapping[str, GroundingReport], shown: str | None = None) -> str:
    """A line for each map and baseline, then the differences in faithfulness, and a legend.

    Args:
        reports: of the same words, by the names of the maps.
        shown: the map with which the others are compared; if it is missing, the first one.
    """
    first = next(iter(reports.values()))
    compared = reports.get(shown or "", first)
    if not first.looks:
        return "no word names an object that is there"
    width = max(len(name) for name in [*reports, GAUSSIAN, UNIFORM, RANDOM])
    titles = " ".join(f"{title:>{size}}" for title, size in zip(HEADER, SIZES, strict=True))
    gain = "pointing minus Gaussian's"
    lines = [f"{'map':{width}} {titles}  {gain:<30}{'off the middle':<30}{FALL_TIMES}"]
    for name, report in reports.items():
        fall = _with_interval(report.all.scores.get(FALL_TIMES), ".2f")
        gains = [
            _with_interval(group.scores.get(GAINS[POINTING]), "+.3f")
            for group in (report.all, report.kinds[0])
        ]
        compared_with_middle = "".join(f"{cell:<30}" for cell in (*gains, fall))
        lines.append(f"{name:{width}} {_numbers(report, MODEL)}  {compared_with_middle}")
    for source in (GAUSSIAN, UNIFORM, RANDOM):
        lines.append(f"{source:{width}} {_numbers(first, source)}")
    lines += _differences(reports, compared, width)
    lines += [
        "",
        f"{first.all.looks} mentions of objects in {len(first.named)} images; "
        f"{first.kinds[0].looks} of the objects do not cover the middle",
        "times: mass in the box over a uniform map's; box: around the maximum, IoU above 0.5",
        "deletion (low is good), insertion (high): areas under the curves of the probability",
        "overall (high): insertion minus deletion",
        "fall: of the probability without the regions that hold half of the map",
        "ms/word: without what the maps above it have computed",
        f"in brackets: {LEVEL * 100:.0f} % intervals, paired bootstrap over images",
    ]
    return "\n".join(line.rstrip() for line in lines)


def _numbers(report: GroundingReport, source: str) -> str:
    """The columns of the map or of a baseline, for which some are undefined."""
    every, off = report.all, report.kinds[0]
    if source == MODEL:
        times, fall, cost = every.value(TIMES[IN_BOX]), every.value(ATTENDED), report.milliseconds
    else:
        mass, even = every.value(named(IN_BOX, source)), every.value(named(IN_BOX, UNIFORM))
        times, cost = mass / even, None
        fall = every.value(CENTRED) if source == GAUSSIAN else math.nan
    values = (
        every.value(named(POINTING, source)),
        off.value(named(POINTING, source)),
        every.value(named(IN_BOX, source)),
        times,
        every.value(named(LOCALISED, source)),
        *(every.value(named(measure, source)) for measure in FAITHFULNESS),
        fall,
        math.nan if cost is None else cost,
    )
    return " ".join(
        _cell(value, size, digits)
        for value, size, digits in zip(values, SIZES, DIGITS, strict=True)
    )


def _differences(
    reports: Mapping[str, GroundingReport], compared: GroundingReport, width: int
) -> list[str]:
    """The faithfulness of each map minus that of `compared`; empty without curves."""
    lines = []
    for name, report in reports.items():
        if report is not compared and report.looks[0].areas:
            found = curve_differences(report.looks, compared.looks)
            columns = [f"{_with_interval(found[each], '+.4f'):<32}" for each in FAITHFULNESS]
            lines.append(f"{name:{width}} {''.join(columns)}")
    if not lines:
        return []
    titles = "".join(f"{each} minus {compared.map_name}'s".ljust(32) for each in FAITHFULNESS)
    return ["", f"{'map':{width}} {titles}", *lines]


def curve_differences(looks: Sequence[Look], others: Sequence[Look]) -> dict[str, Estimate]:
    """The faithfulness of a map minus that of another map at the same words, in the same order.

    Returns:
        Estimates by the names in `FAITHFULNESS`; for deletion, negative is good.
    """
    pairs = {}
    for measure in FAITHFULNESS:
        differences = [
            getattr(look.areas[MODEL], measure) - getattr(other.areas[MODEL], measure)
            for look, other in zip(looks, others, strict=True)
        ]
        pairs[measure] = by_image(looks, differences)
    return with_intervals(pairs)


def _with_interval(estimate: Estimate | None, form: str) -> str:
    if estimate is None:
        return "-"
    value, (low, high) = estimate
    known = "" if math.isnan(low) else f" ({low:{form}} to {high:{form}})"
    return f"{value:{form}}{known}"


def _cell(value: float, size: int, digits: int = 3) -> str:
    return f"{'-' if math.isnan(value) else f'{value:.{digits}f}':>{size}}"
