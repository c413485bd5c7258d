"""Several maps of the same words in one table: grounding, faithfulness and cost."""

import math
from collections.abc import Mapping

from captioning.evaluation.grounding.comparison import curve_differences
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
    named,
)
from captioning.evaluation.grounding.grounding_report import GroundingReport
from captioning.evaluation.grounding.kinds import OFF_MIDDLE
from captioning.evaluation.grounding.looks import (
    GAUSSIAN,
    IN_BOX,
    MODEL,
    POINTING,
    RANDOM,
    UNIFORM,
)
from captioning.metrics.scores import LEVEL

HEADER = ("pointing", "off middle", "mass", "times", "box", *FAITHFULNESS, "fall", "ms/word")
SIZES = tuple(max(len(title), 6) for title in HEADER)
DIGITS = (3, 3, 3, 3, 3, *(4 for _ in FAITHFULNESS), 4, 1)
GAIN = "pointing minus Gaussian's"


def map_table(reports: Mapping[str, GroundingReport], shown: str | None = None) -> str:
    """A line for each map and each baseline, how faithful they are beside one map, and a legend.

    Args:
        reports: of the same words, by the names of the maps.
        shown: the map that the others' faithfulness is compared with; the first if none, or if
            it is not among them.
    """
    first = next(iter(reports.values()))
    compared = reports.get(shown or "", first)
    if not first.looks:
        return "no word names an object that is there"
    width = max(len(name) for name in [*reports, GAUSSIAN, UNIFORM, RANDOM])
    titles = " ".join(f"{title:>{size}}" for title, size in zip(HEADER, SIZES, strict=True))
    lines = [f"{'map':{width}} {titles}  {GAIN:<30}{'off the middle':<30}{FALL_TIMES}"]
    for name, report in reports.items():
        lines.append(f"{name:{width}} {_numbers(report, MODEL)}  {_intervals(report)}")
    for source in (GAUSSIAN, UNIFORM, RANDOM):
        lines.append(f"{source:{width}} {_numbers(first, source)}")
    lines += _differences(reports, compared, width)
    off = first.kinds[0].looks
    lines += [
        "",
        f"{first.all.looks} mentions of objects in {len(first.named)} images, {off} of them "
        "of objects that do not cover the middle",
        "times: mass in the box over a uniform map's; box: around the maximum, IoU above 0.5",
        "deletion (low is good), insertion (high): areas under the curves of the probability",
        "overall (high): insertion minus deletion",
        "fall: of the probability without the regions that hold half of the map",
        "ms/word: beyond what a line above has computed; maps by occlusion share its passes",
        f"in brackets: {LEVEL * 100:.0f} % of paired resamples of the images",
    ]
    return "\n".join(line.rstrip() for line in lines)


def _numbers(report: GroundingReport, source: str) -> str:
    """The columns of a map, or of a baseline, which has only some of them."""
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


def _intervals(report: GroundingReport) -> str:
    """What pointing gains over the Gaussian's, for all objects and for those off the middle, and
    how many times the Gaussian's the fall is."""
    fall = _with_interval(report.all.scores.get(FALL_TIMES), ".2f")
    return f"{_gain(report.all):<30}{_gain(report.kinds[0]):<30}{fall:<30}"


def _gain(group: Group) -> str:
    return _with_interval(group.scores.get(GAINS[POINTING]), "+.3f")


def _differences(
    reports: Mapping[str, GroundingReport], compared: GroundingReport, width: int
) -> list[str]:
    """How faithful each other map is beside one of them; nothing where no curves are known."""
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
