"""Several maps of the same words in one table: grounding, faithfulness and time."""

import math
from collections.abc import Mapping

from captioning.evaluation.grounding.estimates import (
    ATTENDED,
    CENTRED,
    FAITHFULNESS,
    FALL_TIMES,
    GAINS,
    LOCALISED,
    TIMES,
    Estimate,
    Group,
    curve_differences,
    named,
)
from captioning.evaluation.grounding.grounding_report import GroundingReport
from captioning.evaluation.grounding.looks import (
    GAUSSIAN,
    IN_BOX,
    MODEL,
    OFF_MIDDLE,
    POINTING,
    RANDOM,
    UNIFORM,
)
from captioning.metrics.scores import LEVEL

HEADER = ("pointing", "off middle", "mass", "times", "box", *FAITHFULNESS, "fall", "ms/word")
SIZES = tuple(max(len(title), 6) for title in HEADER)
DIGITS = (3, 3, 3, 3, 3, *(4 for _ in FAITHFULNESS), 4, 1)


def map_table(reports: Mapping[str, GroundingReport], shown: str | None = None) -> str:
    """A line for each map and baseline, then the differences in faithfulness, and a legend.

    Args:
        reports: reports of the same words, by the names of the maps.
        shown: the map with which the others are compared; default, and if it is missing: the first.
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
        gains = f"{_gain(report.all):<30}{_gain(report.kinds[0]):<30}{fall:<30}"
        lines.append(f"{name:{width}} {_numbers(report, MODEL)}  {gains}")
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
    assert off.name == OFF_MIDDLE
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
        f"{'-' if math.isnan(value) else f'{value:.{digits}f}':>{size}}"
        for value, size, digits in zip(values, SIZES, DIGITS, strict=True)
    )


def _gain(group: Group) -> str:
    return _with_interval(group.scores.get(GAINS[POINTING]), "+.3f")


def _differences(
    reports: Mapping[str, GroundingReport], compared: GroundingReport, width: int
) -> list[str]:
    """The faithfulness of each map minus that of `compared`; empty without curves."""
    lines = []
    for name, report in reports.items():
        found = curve_differences(report.looks, compared.looks)
        if found and report is not compared:
            columns = [f"{_with_interval(found[each], '+.4f'):<32}" for each in FAITHFULNESS]
            lines.append(f"{name:{width}} {''.join(columns)}")
    if not lines:
        return []
    titles = "".join(f"{each} minus {compared.map_name}'s".ljust(32) for each in FAITHFULNESS)
    return ["", f"{'map':{width}} {titles}", *lines]


def _with_interval(estimate: Estimate | None, form: str) -> str:
    if estimate is None:
        return "-"
    value, (low, high) = estimate
    known = "" if math.isnan(low) else f" ({low:{form}} to {high:{form}})"
    return f"{value:{form}}{known}"
