"""Several maps of the same words in one table: grounding, faithfulness and cost."""

import math
from collections.abc import Mapping

from captioning.evaluation.grounding.estimates import (
    ATTENDED,
    CENTRED,
    CURVES,
    GAINS,
    LOCALISED,
    TIMES,
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
from captioning.metrics.bootstrap import LEVEL

HEADER = ("pointing", "off middle", "mass", "times", "box", *CURVES, "fall", "ms/word")
SIZES = tuple(max(len(title), 6) for title in HEADER)
DIGITS = (3, 3, 3, 3, 3, *(4 for _ in CURVES), 4, 1)
GAIN = "pointing minus Gaussian's"


def map_table(reports: Mapping[str, GroundingReport]) -> str:
    """A line for each map and each baseline, then what the columns mean.

    Args:
        reports: of the same words, by the names of the maps.
    """
    first = next(iter(reports.values()))
    if not first.looks:
        return "no word names an object that is there"
    width = max(len(name) for name in [*reports, GAUSSIAN, UNIFORM, RANDOM])
    titles = " ".join(f"{title:>{size}}" for title, size in zip(HEADER, SIZES, strict=True))
    lines = [f"{'map':{width}} {titles}  {GAIN:<30}{'off the middle':<26}"]
    for name, report in reports.items():
        lines.append(f"{name:{width}} {_numbers(report, MODEL)}  {_gains(report)}")
    for source in (GAUSSIAN, UNIFORM, RANDOM):
        lines.append(f"{source:{width}} {_numbers(first, source)}")
    off = first.kinds[0].looks
    lines += [
        "",
        f"{first.all.looks} mentions of objects in {len(first.named)} images, {off} of them "
        "of objects that do not cover the middle",
        "times: mass in the box over a uniform map's; box: around the maximum, IoU above 0.5",
        "deletion (low is good), insertion (high): areas under the curves of the probability",
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
        *(every.value(named(curve, source)) for curve in CURVES),
        fall,
        math.nan if cost is None else cost,
    )
    return " ".join(
        f"{'-' if math.isnan(value) else f'{value:.{digits}f}':>{size}}"
        for value, size, digits in zip(values, SIZES, DIGITS, strict=True)
    )


def _gains(report: GroundingReport) -> str:
    """What pointing gains over the Gaussian's, for all objects and for those off the middle."""
    return f"{_gain(report.all):<30}{_gain(report.kinds[0]):<26}"


def _gain(group: Group) -> str:
    name = GAINS[POINTING]
    if name not in group.scores:
        return "-"
    value, (low, high) = group.scores[name]
    return f"{value:+.3f}" + ("" if math.isnan(low) else f" ({low:+.3f} to {high:+.3f})")
