"""Scores of looks, each with its interval: a ratio of sums over images."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

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
    Areas,
    Look,
)
from captioning.evaluation.grounding.ratios import Pair, Ratios
from captioning.metrics.scores import Interval, intervals

TIMES = {measure: f"{measure}, times uniform" for measure in (IN_BOX, IN_MASK)}
GAINS = {measure: f"{measure}, minus Gaussian" for measure in (POINTING, IN_BOX)}
LOCALISED = "box at IoU 0.5"
FALLS = PROBABILITY, ATTENDED, AT_RANDOM, CENTRED = (
    "probability",
    "fall without the most attended regions",
    "fall without random regions",
    "fall without regions in the middle",
)
FALL_TIMES = "fall, times the Gaussian's"
FAITHFULNESS = (*Areas._fields, "overall")
"""Attributes of `Areas`."""


def named(measure: str, source: str) -> str:
    """What a measure of one of the attentions is called; the model's has no addition."""
    return measure if source == MODEL else f"{measure}, {source}"


class Estimate(NamedTuple):
    """A score with its bootstrap confidence interval at `LEVEL`, over images."""

    value: float
    interval: Interval


@dataclass(frozen=True)
class Group:
    """The scores of some looks: of all, of one word's, or of one kind of object.

    Attributes:
        name: the word, or what the objects have in common.
        looks: the number of looks.
        scores: estimates by name; for a baseline's attention, the name is the measure's followed by
            the baseline's.
    """

    name: str
    looks: int
    scores: dict[str, Estimate]

    @classmethod
    def of(cls, name: str, looks: Sequence[Look]) -> "Group":
        """The group of these looks."""
        return cls(name, len(looks), with_intervals(_pairs(looks)) if looks else {})

    def value(self, name: str) -> float:
        """A score without its interval; NaN if undefined, as mass in mask is without masks."""
        return self.scores[name].value if name in self.scores else np.nan

    def as_json(self) -> dict[str, Any]:
        """The number of looks, and the scores with their intervals."""
        return {"mentions": self.looks, **estimates_json(self.scores)}


def with_intervals(pairs: Mapping[str, Pair]) -> dict[str, Estimate]:
    """The defined ratios, with their intervals; a difference's is that of paired resamples."""
    ratios = Ratios.of_pairs(pairs)
    if not ratios.pairs:
        return {}
    number = len(next(iter(ratios.pairs.values()))[0])
    found = intervals([ratios], number)
    return {name: Estimate(value, found[name]) for name, value in ratios.corpus.items()}


def estimates_json(scores: Mapping[str, Estimate]) -> dict[str, Any]:
    """Estimates as plain values; an interval with an undefined end is left out."""
    return {
        name: {"value": value, **({} if np.isnan(interval.low) else interval._asdict())}
        for name, (value, interval) in scores.items()
    }


def by_image(looks: Sequence[Look], values: Sequence[float]) -> Pair:
    """The sum and the number of the known values of each image.

    Args:
        looks: of one image or of several.
        values: one of each look; NaN if it is not known.
    """
    _, images = np.unique([str(look.image_id) for look in looks], return_inverse=True)
    column = np.array(values, dtype=np.float64)
    known = ~np.isnan(column)
    return (
        np.bincount(images, np.where(known, column, 0)).astype(np.float64),
        np.bincount(images, known).astype(np.float64),
    )


def _pairs(looks: Sequence[Look]) -> dict[str, Pair]:
    """Numerators and denominators of the scores, for every image with such looks."""

    def pair(values: Sequence[float]) -> Pair:
        return by_image(looks, values)

    pairs = {
        named(measure, source): pair([look.scores[source][measure] for look in looks])
        for measure in MEASURES
        for source in SOURCES
    }
    for measure, name in TIMES.items():
        pairs[name] = (pairs[measure][0], pairs[named(measure, UNIFORM)][0])
    for measure, name in GAINS.items():
        theirs, number = pairs[named(measure, GAUSSIAN)]
        pairs[name] = (pairs[measure][0] - theirs, number)
    for source in SOURCES:
        pairs[named(LOCALISED, source)] = pair([look.localised[source] for look in looks])
    tried = [look.drops or (np.nan,) * len(FALLS) for look in looks]
    for name, column in zip(FALLS, zip(*tried, strict=True), strict=True):
        pairs[name] = pair(column)
    pairs[FALL_TIMES] = (pairs[ATTENDED][0], pairs[CENTRED][0])
    for source in (MODEL, GAUSSIAN, RANDOM):
        under = [look.areas.get(source, Areas(np.nan, np.nan)) for look in looks]
        for measure in FAITHFULNESS:
            pairs[named(measure, source)] = pair([getattr(areas, measure) for areas in under])
    return pairs
