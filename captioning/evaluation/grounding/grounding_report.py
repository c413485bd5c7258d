"""The grounding report of a map: its scores with intervals, as JSON and as a table.

Each score is a ratio of two sums over images, such as a mean over words. Its interval is a
bootstrap over images.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from captioning.errors import printable
from captioning.evaluation.grounding.faithfulness import DRAWS, HIDDEN
from captioning.evaluation.grounding.lexicon import ImageMentions
from captioning.evaluation.grounding.targets import (
    ATTENDED,
    CENTRED,
    FAITHFULNESS,
    KINDS,
    OFF_MIDDLE,
    SIGMA,
    GroundedMention,
    named,
)
from captioning.evaluation.report import aligned
from captioning.maps import ATTENTION
from captioning.metrics.scores import LEVEL, Estimate, percentile_interval, resampled

Pair = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Numerators and denominators, each (images,)."""


@dataclass(frozen=True)
class GroundingReport:
    """Grounding, hallucination and faithfulness of a model's captions.

    Attributes:
        mentions: those of objects that the model's crop shows, with their maps.
        images: the number of mentions of each image.
        map_name: the map that was tested, by its name in `captioning.maps`.
        references: whether the model read the references instead of its own captions.
        milliseconds: the time per word of the map, without what earlier maps of the same words
            have already computed.
    """

    mentions: Sequence[GroundedMention]
    images: Sequence[ImageMentions]
    map_name: str = ATTENTION
    references: bool = False
    milliseconds: float = math.nan

    @cached_property
    def scores(self) -> dict[str, Estimate]:
        """The scores of the mentions by name."""
        if not self.mentions:
            return {}
        pairs = _sums(self.mentions, [each.values for each in self.mentions])
        for mass in ("mass in box", "mass in mask"):
            if mass in pairs:
                pairs[f"{mass}, times uniform"] = pairs[mass][0], pairs[f"{mass}, uniform"][0]
        for measure in ("pointing", "mass in box"):
            theirs, number = pairs[f"{measure}, Gaussian"]
            pairs[f"{measure}, minus Gaussian"] = pairs[measure][0] - theirs, number
        if ATTENDED in pairs:
            pairs["fall, times the Gaussian's"] = pairs[ATTENDED][0], pairs[CENTRED][0]
        return with_intervals(pairs)

    def value(self, name: str, source: str = "model") -> float:
        """A score without its interval; NaN if undefined, as mass in mask is without masks."""
        found = self.scores.get(named(name, source))
        return found.value if found else math.nan

    @cached_property
    def kinds(self) -> dict[str, "GroundingReport"]:
        """The reports of the mentions of each of `KINDS` of objects."""
        return {
            name: replace(self, mentions=[*filter(kind, self.mentions)])
            for name, kind in KINDS.items()
        }

    @cached_property
    def words(self) -> dict[str, "GroundingReport"]:
        """The reports of each word's mentions, the most frequent word first."""
        by_word = defaultdict(list)
        for each in self.mentions:
            by_word[each.mention.name].append(each)
        ordered = sorted(by_word.items(), key=lambda item: (-len(item[1]), item[0]))
        return {name: replace(self, mentions=its) for name, its in ordered}

    @cached_property
    def hallucination(self) -> dict[str, Estimate]:
        """CHAIR (Rohrbach et al. 2018): the share of hallucinated mentions, and of captions.

        CHAIR-i is omitted if no caption names anything; both are omitted for references.
        """
        if self.references:
            return {}
        absent = np.array([len(each.absent) for each in self.images], dtype=np.float64)
        counts = np.array([each.count for each in self.images], dtype=np.float64)
        by_mention = (absent[counts > 0], counts[counts > 0])
        by_caption = (np.sign(absent), np.ones_like(absent))
        return with_intervals({"CHAIR-i": by_mention}) | with_intervals({"CHAIR-s": by_caption})

    @property
    def unknown(self) -> int:
        """The number of mentions that are not tested, since the model does not know a word."""
        return sum(each.unknown for each in self.images)

    def ranked(self, worst: bool = False) -> list[GroundedMention]:
        """The best (or worst) mention of each image, ordered by the gain over a uniform map."""
        first: dict[int | str, GroundedMention] = {}
        for each in sorted(self.mentions, key=lambda each: each.gain if worst else -each.gain):
            first.setdefault(each.image_id, each)
        return list(first.values())

    @property
    def summary(self) -> dict[str, float]:
        """All scores of all mentions, without intervals."""
        return {name: each.value for name, each in (self.scores | self.hallucination).items()}

    def line(self) -> str:
        """The main scores in a line."""
        scores = self.scores | self.hallucination
        names = [name for name in ("pointing", "CHAIR-i", "CHAIR-s") if name in scores]
        return "grounding: " + ", ".join(f"{name} {scores[name].text('.3f')}" for name in names)

    def as_json(self) -> dict[str, Any]:
        """The whole report with every mention, without undefined values and without times."""
        absent = Counter(mention.name for each in self.images for mention in each.absent)
        return {
            "images": len(self.images),
            "captions": "references" if self.references else "generated",
            "map": self.map_name,
            "interval": LEVEL,
            "settings": {"Gaussian's sigma": SIGMA, "attention hidden": HIDDEN, "draws": DRAWS},
            "all": _group_json(self),
            "kinds": {name: _group_json(group) for name, group in self.kinds.items()},
            "unknown": self.unknown,
            "words": {name: _group_json(group) for name, group in self.words.items()},
            "hallucination": {
                **_estimates_json(self.hallucination),
                "words": dict(absent.most_common()),
            },
            "mentions": [
                {"image_id": each.image_id, **each.mention._asdict(), "caption": each.caption}
                | each.values
                for each in self.mentions
            ],
        }


def _group_json(group: GroundingReport) -> dict[str, Any]:
    return {"mentions": len(group.mentions), **_estimates_json(group.scores)}


def maps_json(reports: Mapping[str, GroundingReport], default: str) -> dict[str, Any]:
    """The scores and times of several maps, without the scores of each mention.

    Args:
        reports: of the same words, by the names of the maps.
        default: the map from whose faithfulness the paired differences of the others are.
    """
    compared = reports.get(default, next(iter(reports.values())))
    found = {}
    for name, report in reports.items():
        scores = {key: value for key, value in report.as_json().items() if key != "mentions"}
        found[name] = {"milliseconds": report.milliseconds, **scores}
        if report is not compared and "overall" in report.scores:
            gains = [
                {name: one.values[name] - other.values[name] for name in FAITHFULNESS}
                for one, other in zip(report.mentions, compared.mentions, strict=True)
            ]
            differences = with_intervals(_sums(report.mentions, gains))
            found[name][f"minus {compared.map_name}"] = _estimates_json(differences)
    return found


def grounding_table(reports: Mapping[str, GroundingReport]) -> str:
    """A row for each map and each baseline, and a line on the mentions; see `maps_json`."""
    first = next(iter(reports.values()))
    header = ("map", "pointing", "minus Gaussian's", "off middle", "mass", "fall", "overall")
    rows: list[tuple[str, ...]] = [(*header, "ms/word")]
    lines = [(printable(name), report, "model", ATTENDED) for name, report in reports.items()]
    lines += [("Gaussian", first, "Gaussian", CENTRED), ("uniform", first, "uniform", "")]
    if "overall" in first.scores:
        lines.append(("random", first, "random", ""))
    for name, report, source, fall in lines:
        gain = report.scores.get("pointing, minus Gaussian") if source == "model" else None
        numbers = (
            f"{report.value('pointing', source):.3f}",
            gain.text("+.3f") if gain else "-",
            f"{report.kinds[OFF_MIDDLE].value('pointing', source):.3f}",
            f"{report.value('mass in box', source):.3f}",
            f"{report.value(fall):.4f}",
            f"{report.value('overall', source):.4f}",
            f"{report.milliseconds if source == 'model' and report.mentions else math.nan:.1f}",
        )
        rows.append((name, *(number.replace("nan", "-") for number in numbers)))
    notes = [
        f"{len(first.mentions)} mentions of objects in {len(first.images)} images, "
        f"{len(first.kinds[OFF_MIDDLE].mentions)} {OFF_MIDDLE}",
        *(f"{name} {each.value:.3f}" for name, each in first.hallucination.items()),
        *([f"{first.unknown} of unknown words"] if first.unknown else []),
    ]
    return "\n".join([aligned(rows), "; ".join(notes)])


def with_intervals(pairs: Mapping[str, Pair]) -> dict[str, Estimate]:
    """Ratios of sums over images, such as means over words, with their intervals.

    Ratios whose denominator is zero for all images are omitted. All use the same resamples, so a
    difference has the interval of paired resamples.
    """
    pairs = {name: pair for name, pair in pairs.items() if pair[1].any()}
    if not pairs:
        return {}

    def ratio(top: NDArray[np.float64], bottom: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.divide(top, bottom, out=np.full(top.shape, np.nan), where=bottom != 0)

    drawn = resampled(
        lambda counts: {
            name: ratio(counts @ top, counts @ bottom) for name, (top, bottom) in pairs.items()
        },
        len(next(iter(pairs.values()))[0]),
    )
    return {
        name: Estimate(float(top.sum() / bottom.sum()), *percentile_interval(drawn[name]))
        for name, (top, bottom) in pairs.items()
    }


def _sums(
    mentions: Sequence[GroundedMention], values: Sequence[Mapping[str, float]]
) -> dict[str, Pair]:
    """The sum and the number of the known values of each image, by their names."""
    _, images = np.unique([str(each.image_id) for each in mentions], return_inverse=True)
    found: dict[str, Pair] = {}
    for name in dict.fromkeys(name for its in values for name in its):
        column = np.array([its.get(name, 0.0) for its in values])
        known = np.array([name in its for its in values], dtype=np.float64)
        sums, numbers = (np.bincount(images, each).astype(float) for each in (column, known))
        found[name] = sums, numbers
    return found


def _estimates_json(scores: Mapping[str, Estimate]) -> dict[str, Any]:
    """Estimates as plain values; an undefined interval is omitted."""
    return {
        name: {key: value for key, value in each._asdict().items() if not math.isnan(value)}
        for name, each in scores.items()
    }
