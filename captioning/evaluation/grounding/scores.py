"""Scores of grounded mentions with intervals over images: ratios of sums, differences of maps."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from captioning.evaluation.grounding.mentions import (
    GAUSSIAN,
    IN_BOX,
    IN_MASK,
    MEASURES,
    MODEL,
    POINTING,
    RANDOM,
    SOURCES,
    UNIFORM,
    CurveAreas,
    GroundedMention,
)
from captioning.metrics.scores import Interval, percentile_interval, resamples

TIMES = {measure: f"{measure}, times uniform" for measure in (IN_BOX, IN_MASK)}
GAINS = {measure: f"{measure}, minus Gaussian" for measure in (POINTING, IN_BOX)}
DROPS = PROBABILITY, ATTENDED, AT_RANDOM, CENTRED = (
    "probability",
    "fall without the most attended regions",
    "fall without random regions",
    "fall without regions in the middle",
)
DROP_TIMES = "fall, times the Gaussian's"
FAITHFULNESS = ("deletion", "insertion", "overall")
"""Attributes of `CurveAreas`."""

Pair = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Numerators and denominators, each (images,)."""


class Estimate(NamedTuple):
    """A score with its bootstrap confidence interval at `LEVEL`, over images."""

    value: float
    interval: Interval


@dataclass(frozen=True)
class Group:
    """The scores of all mentions, of one word's, or of one kind of object, by their names.

    `count` is the number of mentions.
    """

    name: str
    count: int
    scores: dict[str, Estimate]

    @classmethod
    def of(cls, name: str, mentions: Sequence[GroundedMention]) -> "Group":
        """The group of these mentions."""
        return cls(name, len(mentions), with_intervals(_pairs(mentions)) if mentions else {})

    def value(self, name: str, source: str = MODEL) -> float:
        """A score without its interval; NaN if undefined, as mass in mask is without masks."""
        name = named(name, source)
        return self.scores[name].value if name in self.scores else math.nan

    def as_json(self) -> dict[str, Any]:
        """The number of mentions, and the scores with their intervals."""
        return {"mentions": self.count, **estimates_json(self.scores)}


def named(measure: str, source: str) -> str:
    """The name of a measure of a source; the source is omitted for the model."""
    return measure if source == MODEL else f"{measure}, {source}"


def with_intervals(pairs: Mapping[str, Pair]) -> dict[str, Estimate]:
    """Ratios of sums over images, such as means over words, with their intervals.

    Ratios whose denominator is zero for all images are omitted. All use the same resamples, so a
    difference has the interval of paired resamples; its ends are NaN if a resample is undefined.
    """
    pairs = {name: pair for name, pair in pairs.items() if pair[1].any()}
    if not pairs:
        return {}
    drawn: dict[str, list[NDArray[np.float64]]] = defaultdict(list)
    for counts in resamples(len(next(iter(pairs.values()))[0])):
        for name, (top, bottom) in pairs.items():
            tops, bottoms = counts @ top, counts @ bottom
            undefined = np.full(tops.shape, np.nan)
            drawn[name].append(np.divide(tops, bottoms, out=undefined, where=bottoms != 0))
    return {
        name: Estimate(
            float(top.sum() / bottom.sum()), percentile_interval(np.concatenate(drawn[name]))
        )
        for name, (top, bottom) in pairs.items()
    }


def curve_differences(
    mentions: Sequence[GroundedMention], others: Sequence[GroundedMention]
) -> dict[str, Estimate]:
    """The faithfulness of a map minus that of another map at the same words, in the same order.

    Returns:
        Estimates by the names in `FAITHFULNESS`; for deletion, negative is good.
    """
    pairs = {}
    for measure in FAITHFULNESS:
        differences = [
            getattr(each.areas[MODEL], measure) - getattr(other.areas[MODEL], measure)
            for each, other in zip(mentions, others, strict=True)
        ]
        pairs[measure] = _by_image(mentions, differences)
    return with_intervals(pairs)


def _by_image(mentions: Sequence[GroundedMention], values: Sequence[float]) -> Pair:
    """The sum and the number of the known values of each image; unknown ones are NaN."""
    _, images = np.unique([str(each.image_id) for each in mentions], return_inverse=True)
    column = np.array(values, dtype=np.float64)
    known = ~np.isnan(column)
    return (
        np.bincount(images, np.where(known, column, 0)).astype(np.float64),
        np.bincount(images, known).astype(np.float64),
    )


def _pairs(mentions: Sequence[GroundedMention]) -> dict[str, Pair]:
    """Numerators and denominators of the scores, for every image with such mentions."""
    pairs = {
        named(measure, source): _by_image(
            mentions, [each.scores[source][measure] for each in mentions]
        )
        for measure in MEASURES
        for source in SOURCES
    }
    for measure, name in TIMES.items():
        pairs[name] = (pairs[measure][0], pairs[named(measure, UNIFORM)][0])
    for measure, name in GAINS.items():
        theirs, number = pairs[named(measure, GAUSSIAN)]
        pairs[name] = (pairs[measure][0] - theirs, number)
    drops = [each.drops or (math.nan,) * len(DROPS) for each in mentions]
    for name, column in zip(DROPS, zip(*drops, strict=True), strict=True):
        pairs[name] = _by_image(mentions, column)
    pairs[DROP_TIMES] = (pairs[ATTENDED][0], pairs[CENTRED][0])
    for source in (MODEL, GAUSSIAN, RANDOM):
        under = [each.areas.get(source, CurveAreas(math.nan, math.nan)) for each in mentions]
        for measure in FAITHFULNESS:
            values = [getattr(areas, measure) for areas in under]
            pairs[named(measure, source)] = _by_image(mentions, values)
    return pairs


def estimates_json(scores: Mapping[str, Estimate]) -> dict[str, Any]:
    """Estimates as plain values; an interval with an undefined end is omitted."""
    return {
        name: {"value": value, **({} if math.isnan(interval.low) else interval._asdict())}
        for name, (value, interval) in scores.items()
    }
