"""Scores of looks with intervals over images: ratios of sums, differences of maps, and F1."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from captioning.evaluation.grounding.lexicon import Named
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
from captioning.metrics.scores import Interval, percentile_interval, resamples

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

F1_ALL, F1_LOC = "F1_all", "F1_loc"

Pair = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Numerators and denominators, each (images,)."""


def named(measure: str, source: str) -> str:
    """The name of a measure of a source; the source is omitted for the model."""
    return measure if source == MODEL else f"{measure}, {source}"


class Estimate(NamedTuple):
    """A score with its bootstrap confidence interval at `LEVEL`, over images."""

    value: float
    interval: Interval


@dataclass(frozen=True)
class Group:
    """The scores of all looks, of one word's, or of one kind of object, by their names (`named`).

    `looks` is the number of looks.
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


def estimates_json(scores: Mapping[str, Estimate]) -> dict[str, Any]:
    """Estimates as plain values; an interval with an undefined end is omitted."""
    return {
        name: {"value": value, **({} if np.isnan(interval.low) else interval._asdict())}
        for name, (value, interval) in scores.items()
    }


def by_image(looks: Sequence[Look], values: Sequence[float]) -> Pair:
    """The sum and the number of the known values of each image; a value of a look may be NaN."""
    _, images = np.unique([str(look.image_id) for look in looks], return_inverse=True)
    column = np.array(values, dtype=np.float64)
    known = ~np.isnan(column)
    return (
        np.bincount(images, np.where(known, column, 0)).astype(np.float64),
        np.bincount(images, known).astype(np.float64),
    )


def f1_scores(looks: Sequence[Look], captions: Sequence[Named], source: str) -> dict[str, float]:
    """F1_all and F1_loc of Zhou et al. 2019 ("Grounded Video Description").

    A mention is correct if the references name its category and its box fits: here the box around
    the map's maximum, in the paper a detector's box. Precision is over the mentions in the
    captions, recall over the categories that an image's references name and that have a box in the
    image. Both are averaged over the categories of all references. F1_loc omits what only one side
    names, so that only places count.

    Args:
        looks: of one generated caption for each image.
        captions: what the caption of each image names.
        source: whose boxes count.

    Returns:
        F1_all if a reference names something with a box, F1_loc if a caption names it too.
    """
    precision: dict[str, list[float]] = defaultdict(list)  # the references name the category
    recall: dict[str, list[float]] = defaultdict(list)
    wrong: dict[str, list[float]] = defaultdict(list)
    missed: dict[str, list[float]] = defaultdict(list)
    of_image: dict[int | str, list[Look]] = defaultdict(list)
    for look in looks:
        of_image[look.image_id].append(look)
    for caption in captions:
        first: dict[str, float] = {}
        for look in of_image[caption.image_id]:
            category, fits = look.mention.category, look.localised[source]
            if category in caption.wanted:
                precision[category].append(fits)
                first.setdefault(category, fits)
            else:
                wrong[category].append(0.0)
        for mention in caption.absent:
            wrong[mention.category].append(0.0)
        for category in caption.wanted:
            (recall if category in first else missed)[category].append(first.get(category, 0.0))
    categories = sorted(frozenset().union(*(caption.wanted for caption in captions)))
    if not categories:
        return {}
    found = {F1_ALL: _f1(_mean(categories, precision, wrong), _mean(categories, recall, missed))}
    if precision:
        found[F1_LOC] = _f1(_mean(categories, precision), _mean(categories, recall))
    return found


def _mean(categories: Sequence[str], *hits: Mapping[str, Sequence[float]]) -> float:
    """The mean over categories of the mean of their hits; 0 for a category without any."""
    each = [[hit for some in hits for hit in some.get(category, ())] for category in categories]
    return float(np.mean([np.mean(found) if found else 0.0 for found in each]))


def _f1(precision: float, recall: float) -> float:
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def _pairs(looks: Sequence[Look]) -> dict[str, Pair]:
    """Numerators and denominators of the scores, for every image with such looks."""
    pairs = {
        named(measure, source): by_image(looks, [look.scores[source][measure] for look in looks])
        for measure in MEASURES
        for source in SOURCES
    }
    for measure, name in TIMES.items():
        pairs[name] = (pairs[measure][0], pairs[named(measure, UNIFORM)][0])
    for measure, name in GAINS.items():
        theirs, number = pairs[named(measure, GAUSSIAN)]
        pairs[name] = (pairs[measure][0] - theirs, number)
    for source in SOURCES:
        pairs[named(LOCALISED, source)] = by_image(
            looks, [look.localised[source] for look in looks]
        )
    tried = [look.drops or (np.nan,) * len(FALLS) for look in looks]
    for name, column in zip(FALLS, zip(*tried, strict=True), strict=True):
        pairs[name] = by_image(looks, column)
    pairs[FALL_TIMES] = (pairs[ATTENDED][0], pairs[CENTRED][0])
    for source in (MODEL, GAUSSIAN, RANDOM):
        under = [look.areas.get(source, Areas(np.nan, np.nan)) for look in looks]
        for measure in FAITHFULNESS:
            values = [getattr(areas, measure) for areas in under]
            pairs[named(measure, source)] = by_image(looks, values)
    return pairs
