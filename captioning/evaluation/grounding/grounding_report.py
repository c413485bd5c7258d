"""The grounding report: as numbers, as a table, and in a file."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from captioning.evaluation.grounding.faithfulness import DRAWS, HIDDEN
from captioning.evaluation.grounding.looks import (
    IN_BOX,
    IN_MASK,
    MEASURES,
    MODEL,
    POINTING,
    SIGMA,
    SOURCES,
    UNIFORM,
    Look,
)
from captioning.evaluation.grounding.ratios import Pair, Ratios
from captioning.files import write_json
from captioning.metrics.bootstrap import LEVEL, Interval, intervals

TIMES = {measure: f"{measure}, times uniform" for measure in (IN_BOX, IN_MASK)}
PROBABILITY, ATTENDED, RANDOM = (
    "probability",
    "fall without the most attended regions",
    "fall without random regions",
)


class Named(NamedTuple):
    """The objects that one caption names.

    Attributes:
        mentions: how many mentions of objects it has.
        absent: the mentioned words whose objects are not in the picture.
    """

    mentions: int
    absent: tuple[str, ...]


class Estimate(NamedTuple):
    """A score with its bootstrap confidence interval at `LEVEL`, over images."""

    value: float
    interval: Interval


@dataclass(frozen=True)
class Group:
    """The scores of one word's looks, or of all looks.

    Attributes:
        name: the word.
        looks: the number of looks.
        scores: estimates by name; for a baseline's attention, the name is the measure's followed by
            the baseline's.
    """

    name: str
    looks: int
    scores: dict[str, Estimate]

    def value(self, name: str) -> float:
        """A score without its interval; NaN if undefined, as mass in mask is without masks."""
        return self.scores[name].value if name in self.scores else np.nan

    def as_json(self) -> dict[str, Any]:
        """The number of looks, and the scores with their intervals."""
        return {"mentions": self.looks, **_estimates(self.scores)}


@dataclass(frozen=True)
class GroundingReport:
    """Grounding, hallucination and faithfulness of a model's captions.

    Attributes:
        looks: one for every mention of an object that the model's crop shows.
        named: the objects that each image's caption names.
    """

    looks: Sequence[Look]
    named: Sequence[Named]

    @cached_property
    def all(self) -> Group:
        """The scores of all looks."""
        return _group("all", self.looks)

    @cached_property
    def words(self) -> list[Group]:
        """The scores of each word's looks, the most frequent word first."""
        names = Counter(look.mention.name for look in self.looks)
        return [
            _group(name, [look for look in self.looks if look.mention.name == name])
            for name, _ in sorted(names.items(), key=lambda item: (-item[1], item[0]))
        ]

    @cached_property
    def hallucination(self) -> dict[str, Estimate]:
        """CHAIR of Rohrbach et al. 2018: the share of mentions (CHAIR-i) and captions (CHAIR-s).

        CHAIR-i is missing where no caption names anything.
        """
        absent = np.array([len(named.absent) for named in self.named], dtype=np.float64)
        mentions = np.array([named.mentions for named in self.named], dtype=np.float64)
        naming = mentions > 0
        captions = (np.sign(absent), np.ones_like(absent))
        by_mention = (absent[naming], mentions[naming])
        return _with_intervals({"CHAIR-i": by_mention}) | _with_intervals({"CHAIR-s": captions})

    @property
    def absent(self) -> Counter[str]:
        """The words whose objects are not in the picture, with their counts."""
        return Counter(word for named in self.named for word in named.absent)

    @cached_property
    def whereabouts(self) -> dict[str, float]:
        """Diagnostics of why a model misses.

        The share of looks whose box holds any cell's centre, which is an upper bound of the
        pointing game; the share of misses that are one cell off; and the mean offset in cells from
        the centre of the box to the attention's centre of mass, over objects that are the only one
        of their category. Undefined values, such as shares of no misses, are left out.
        """
        misses = [look for look in self.looks if look.scores[MODEL][POINTING] == 0]
        offsets = [offset for look in self.looks if (offset := look.offset) is not None]
        found = {}
        if self.looks:
            found["reachable"] = float(np.mean([look.place.box_holds.any() for look in self.looks]))
        if misses:
            found["misses one cell off"] = float(np.mean([look.is_near for look in misses]))
        if offsets:
            right, down = np.mean(offsets, axis=0).tolist()
            found |= {"cells too far right": right, "cells too far down": down}
        return found

    def ranked(self) -> list[Look]:
        """The best look of every image, in order of decreasing gain over uniform attention."""
        return _one_per_image(sorted(self.looks, key=lambda look: -look.gain))

    def ranked_worst(self) -> list[Look]:
        """The worst look of every image, in order of increasing gain over uniform attention."""
        return _one_per_image(sorted(self.looks, key=lambda look: look.gain))

    def as_json(self) -> dict[str, Any]:
        """The whole report as plain values, including every look; undefined values are left out."""
        return {
            "images": len(self.named),
            "interval": LEVEL,
            "settings": {"Gaussian's sigma": SIGMA, "attention hidden": HIDDEN, "draws": DRAWS},
            "all": self.all.as_json(),
            "words": {group.name: group.as_json() for group in self.words},
            "hallucination": {
                **_estimates(self.hallucination),
                "words": dict(self.absent.most_common()),
            },
            "whereabouts": self.whereabouts,
            "mentions": [_as_json(look) for look in self.looks],
        }

    def write(self, path: str | Path) -> None:
        """Write the whole report as JSON."""
        write_json(path, self.as_json())

    @property
    def summary(self) -> dict[str, float]:
        """The scores of all looks, and the shares of hallucinations."""
        estimates = {**self.all.scores, **self.hallucination}
        return {name: estimate.value for name, estimate in estimates.items()} | self.whereabouts


def _group(name: str, looks: Sequence[Look]) -> Group:
    return Group(name, len(looks), _with_intervals(_pairs(looks)) if looks else {})


def _pairs(looks: Sequence[Look]) -> dict[str, Pair]:
    """Numerators and denominators of the scores, for every image with such looks."""
    _, images = np.unique([str(look.image_id) for look in looks], return_inverse=True)

    def pair(values: Sequence[float]) -> Pair:
        """The sum and the number of the known values of each image."""
        column = np.array(values, dtype=np.float64)
        known = ~np.isnan(column)
        return (
            np.bincount(images, np.where(known, column, 0)).astype(np.float64),
            np.bincount(images, known).astype(np.float64),
        )

    pairs = {
        measure if source == MODEL else f"{measure}, {source}": pair(
            [look.scores[source][measure] for look in looks]
        )
        for measure in MEASURES
        for source in SOURCES
    }
    for measure, name in TIMES.items():
        pairs[name] = (pairs[measure][0], pairs[f"{measure}, {UNIFORM}"][0])
    tried = [look.drops or (np.nan,) * 3 for look in looks]
    for name, column in zip((PROBABILITY, ATTENDED, RANDOM), zip(*tried, strict=True), strict=True):
        pairs[name] = pair(column)
    return pairs


def _with_intervals(pairs: dict[str, Pair]) -> dict[str, Estimate]:
    """The defined ratios, with their intervals."""
    ratios = Ratios.of_pairs(pairs)
    if not ratios.pairs:
        return {}
    number = len(next(iter(ratios.pairs.values()))[0])
    found = intervals([ratios], number)
    return {name: Estimate(value, found[name]) for name, value in ratios.corpus.items()}


def _one_per_image(looks: Sequence[Look]) -> list[Look]:
    first: dict[int | str, Look] = {}
    for look in looks:
        first.setdefault(look.image_id, look)
    return list(first.values())


def _estimates(scores: dict[str, Estimate]) -> dict[str, Any]:
    return {
        name: {"value": value, **_defined(interval)} for name, (value, interval) in scores.items()
    }


def _defined(interval: Interval) -> dict[str, float]:
    """The interval's ends; none if a resample had no such score, since JSON has no NaN."""
    return {} if np.isnan(interval.low) else interval._asdict()


def _as_json(look: Look) -> dict[str, Any]:
    scores: dict[str, Any] = {
        source: {name: value for name, value in measures.items() if not np.isnan(value)}
        for source, measures in look.scores.items()
    }
    hidden = {} if look.drops is None else {"falls": look.drops._asdict()}
    return {
        "image_id": look.image_id,
        "word": look.mention.name,
        "category": look.mention.category,
        "start": look.mention.start,
        **scores,
        **hidden,
    }
