"""The grounding report of a map: scores with intervals, as JSON and as a table.

Each score is a ratio of two sums over images, such as a mean over words. The intervals are from a
bootstrap over images.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from captioning.errors import printable
from captioning.evaluation.grounding.faithfulness import DRAWS, HIDDEN
from captioning.evaluation.grounding.lexicon import ImageMentions
from captioning.evaluation.grounding.targets import (
    ATTENDED,
    CENTRED,
    FAITHFULNESS,
    OBJECT_GROUPS,
    OFF_MIDDLE,
    SIGMA,
    GroundedMention,
    score_name,
)
from captioning.evaluation.report import aligned
from captioning.maps import ATTENTION
from captioning.metrics.scores import LEVEL, Estimate, percentile_interval, resampled


class Ratio(NamedTuple):
    """A score as a ratio of sums over images.

    Attributes:
        numerators: of each image, (images,).
        denominators: of each image, (images,).
    """

    numerators: NDArray[np.float64]
    denominators: NDArray[np.float64]


@dataclass(frozen=True)
class GroundingReport:
    """Grounding, hallucination and faithfulness of a model's captions.

    Attributes:
        mentions: of objects that the model's crop shows, with their maps.
        images: the numbers of mentions of each image.
        map_name: the name of the map in `captioning.maps`.
        references: whether the model read the references instead of generated captions.
        milliseconds: the time per word of the map, without what earlier maps of the same words
            have computed.
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
        ratios = _means(self.mentions, [mention.values for mention in self.mentions])
        for mass in ("mass in box", "mass in mask"):
            if mass in ratios:
                uniform = ratios[f"{mass}, uniform"]
                ratios[f"{mass}, times uniform"] = _quotient(ratios[mass], uniform)
        for measure in ("pointing", "mass in box"):
            gaussian_sums, counts = ratios[f"{measure}, Gaussian"]
            differences = ratios[measure].numerators - gaussian_sums
            ratios[f"{measure}, minus Gaussian"] = Ratio(differences, counts)
        if ATTENDED in ratios:
            quotient = _quotient(ratios[ATTENDED], ratios[CENTRED])
            ratios["fall, times the Gaussian's"] = quotient
        return with_intervals(ratios)

    def value(self, name: str, source: str = "model") -> float:
        """Return a score without its interval; NaN if undefined, as mass in mask without masks."""
        estimate = self.scores.get(score_name(name, source))
        return estimate.value if estimate else math.nan

    @cached_property
    def groups(self) -> dict[str, "GroundingReport"]:
        """The reports of the mentions of each of `OBJECT_GROUPS`."""
        return {
            name: replace(self, mentions=[*filter(is_in_group, self.mentions)])
            for name, is_in_group in OBJECT_GROUPS.items()
        }

    @cached_property
    def words(self) -> dict[str, "GroundingReport"]:
        """The reports of each word's mentions, the most frequent word first."""
        by_word: dict[str, list[GroundedMention]] = defaultdict(list)
        for mention in self.mentions:
            by_word[mention.mention.name].append(mention)
        words = sorted(by_word, key=lambda word: (-len(by_word[word]), word))
        return {word: replace(self, mentions=by_word[word]) for word in words}

    @cached_property
    def hallucination(self) -> dict[str, Estimate]:
        """CHAIR (Rohrbach et al. 2018): the share of hallucinated mentions, and of captions.

        CHAIR-i is omitted if no caption names anything; both are omitted for references.
        """
        if self.references:
            return {}
        hallucinated = [float(len(image.hallucinated)) for image in self.images]
        numerators = np.array(hallucinated, dtype=np.float64)
        counts = np.array([image.count for image in self.images], dtype=np.float64)
        by_mention = Ratio(numerators[counts > 0], counts[counts > 0])
        by_caption = Ratio(np.sign(numerators), np.ones_like(numerators))
        return with_intervals({"CHAIR-i": by_mention}) | with_intervals({"CHAIR-s": by_caption})

    @property
    def unknown_count(self) -> int:
        """The number of mentions that are not tested, since a word is not in the vocabulary."""
        return sum(image.unknown_count for image in self.images)

    def ranked(self, worst: bool = False) -> list[GroundedMention]:
        """Return the best (or worst) mention of each image, sorted by gain over a uniform map."""
        sign = 1 if worst else -1
        by_image: dict[int | str, GroundedMention] = {}
        for mention in sorted(self.mentions, key=lambda mention: sign * mention.gain):
            by_image.setdefault(mention.image_id, mention)
        return list(by_image.values())

    @property
    def summary(self) -> dict[str, float]:
        """All scores of all mentions, without intervals."""
        estimates = self.scores | self.hallucination
        return {name: estimate.value for name, estimate in estimates.items()}

    def line(self) -> str:
        """Format the main scores as a line."""
        scores = self.scores | self.hallucination
        names = [name for name in ("pointing", "CHAIR-i", "CHAIR-s") if name in scores]
        return "grounding: " + ", ".join(f"{name} {scores[name].text('.3f')}" for name in names)

    def as_json(self) -> dict[str, Any]:
        """Return the report with every mention, without undefined values and without times."""
        hallucinated: Counter[str] = Counter()
        for image in self.images:
            hallucinated.update(mention.name for mention in image.hallucinated)
        return {
            "images": len(self.images),
            "captions": "references" if self.references else "generated",
            "map": self.map_name,
            "interval": LEVEL,
            "settings": {"Gaussian's sigma": SIGMA, "attention hidden": HIDDEN, "draws": DRAWS},
            "all": _group_json(self),
            "kinds": {name: _group_json(group) for name, group in self.groups.items()},
            "unknown": self.unknown_count,
            "words": {name: _group_json(group) for name, group in self.words.items()},
            "hallucination": {
                **_estimates_json(self.hallucination),
                "words": dict(hallucinated.most_common()),
            },
            "mentions": [_mention_json(mention) for mention in self.mentions],
        }


def _mention_json(mention: GroundedMention) -> dict[str, Any]:
    return {
        "image_id": mention.image_id,
        **mention.mention._asdict(),
        "caption": mention.caption,
        **mention.values,
    }


def _group_json(group: GroundingReport) -> dict[str, Any]:
    return {"mentions": len(group.mentions), **_estimates_json(group.scores)}


def maps_json(reports: Mapping[str, GroundingReport], default: str) -> dict[str, Any]:
    """Return the scores and times of several maps, without the scores of each mention.

    Args:
        reports: of the same words, by the names of the maps.
        default: the map that the others are compared with, by paired differences in faithfulness.
    """
    baseline = reports.get(default, next(iter(reports.values())))
    content = {}
    for name, report in reports.items():
        scores = report.as_json()
        del scores["mentions"]
        content[name] = {"milliseconds": report.milliseconds, **scores}
        if report is not baseline and "overall" in report.scores:
            differences = _faithfulness_differences(report, baseline)
            content[name][f"minus {baseline.map_name}"] = _estimates_json(differences)
    return content


def _faithfulness_differences(
    report: GroundingReport, baseline: GroundingReport
) -> dict[str, Estimate]:
    """Estimate the differences of two maps of the same mentions."""
    differences = []
    for mention, baseline_mention in zip(report.mentions, baseline.mentions, strict=True):
        values, baseline_values = mention.values, baseline_mention.values
        differences.append({name: values[name] - baseline_values[name] for name in FAITHFULNESS})
    return with_intervals(_means(report.mentions, differences))


def grounding_table(reports: Mapping[str, GroundingReport]) -> str:
    """Format a row for each map and each baseline, and a line on the mentions.

    `reports` is as in `maps_json`.
    """
    first = next(iter(reports.values()))
    header = ("map", "pointing", "minus Gaussian's", "off middle", "mass", "fall", "overall")
    rows: list[tuple[str, ...]] = [(*header, "ms/word")]
    for name, report in reports.items():
        rows.append((printable(name), *_table_cells(report, "model", ATTENDED)))
    rows.append(("Gaussian", *_table_cells(first, "Gaussian", CENTRED)))
    rows.append(("uniform", *_table_cells(first, "uniform", drop="")))
    if "overall" in first.scores:
        rows.append(("random", *_table_cells(first, "random", drop="")))
    notes = [
        f"{len(first.mentions)} mentions of objects in {len(first.images)} images, "
        f"{len(first.groups[OFF_MIDDLE].mentions)} {OFF_MIDDLE}",
        *(f"{name} {estimate.value:.3f}" for name, estimate in first.hallucination.items()),
    ]
    if first.unknown_count:
        notes.append(f"{first.unknown_count} of unknown words")
    return "\n".join([aligned(rows), "; ".join(notes)])


def _table_cells(report: GroundingReport, source: str, drop: str) -> list[str]:
    """Format the scores of a source of a map; `drop` names one of `DROPS`, or nothing."""
    gain, milliseconds = None, math.nan
    if source == "model":
        gain = report.scores.get("pointing, minus Gaussian")
        milliseconds = report.milliseconds if report.mentions else math.nan
    cells = [
        f"{report.value('pointing', source):.3f}",
        gain.text("+.3f") if gain else "-",
        f"{report.groups[OFF_MIDDLE].value('pointing', source):.3f}",
        f"{report.value('mass in box', source):.3f}",
        f"{report.value(drop):.4f}",
        f"{report.value('overall', source):.4f}",
        f"{milliseconds:.1f}",
    ]
    return [cell.replace("nan", "-") for cell in cells]


def with_intervals(ratios: Mapping[str, Ratio]) -> dict[str, Estimate]:
    """Estimate ratios of sums over images, such as means over words, with intervals.

    Ratios whose denominators are all zero are omitted. All ratios use the same resamples, so that
    the interval of a difference is one of paired resamples.
    """
    ratios = {name: ratio for name, ratio in ratios.items() if ratio.denominators.any()}
    if not ratios:
        return {}

    def quotients(counts: NDArray[Any]) -> dict[str, NDArray[np.float64]]:
        quotients = {}
        for name, (numerators, denominators) in ratios.items():
            top, bottom = counts @ numerators, counts @ denominators
            undefined = np.full(top.shape, np.nan)
            quotients[name] = np.divide(top, bottom, out=undefined, where=bottom != 0)
        return quotients

    image_count = len(next(iter(ratios.values())).numerators)
    resamples = resampled(quotients, image_count)
    estimates = {}
    for name, (numerators, denominators) in ratios.items():
        value = float(numerators.sum() / denominators.sum())
        estimates[name] = Estimate(value, *percentile_interval(resamples[name]))
    return estimates


def _means(
    mentions: Sequence[GroundedMention], values: Sequence[Mapping[str, float]]
) -> dict[str, Ratio]:
    """Return the mean of each value by name, as the sum and the number of values of each image.

    A value that a mention does not have is not counted.
    """
    _, images = np.unique([str(mention.image_id) for mention in mentions], return_inverse=True)
    names = dict.fromkeys(name for mention_values in values for name in mention_values)
    means: dict[str, Ratio] = {}
    for name in names:
        column = np.array([mention_values.get(name, 0.0) for mention_values in values])
        has_value = np.array([name in mention_values for mention_values in values], dtype=float)
        sums, counts = np.bincount(images, column), np.bincount(images, has_value)
        means[name] = Ratio(sums.astype(float), counts.astype(float))
    return means


def _quotient(ratio: Ratio, baseline: Ratio) -> Ratio:
    """Return how many times as large as a baseline's the sum of a score is."""
    return Ratio(ratio.numerators, baseline.numerators)


def _estimates_json(scores: Mapping[str, Estimate]) -> dict[str, Any]:
    """Return estimates as plain values; an undefined interval is omitted."""
    content = {}
    for name, estimate in scores.items():
        fields = estimate._asdict().items()
        content[name] = {key: value for key, value in fields if not math.isnan(value)}
    return content
