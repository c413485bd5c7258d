"""The grounding report of a map: its scores with intervals, as JSON and as a table."""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from captioning.errors import printable
from captioning.evaluation.grounding.faithfulness import DRAWS, HIDDEN
from captioning.evaluation.grounding.lexicon import ImageMentions
from captioning.evaluation.grounding.mentions import (
    GAUSSIAN,
    IN_BOX,
    KINDS,
    MODEL,
    POINTING,
    RANDOM,
    SIGMA,
    UNIFORM,
    GroundedMention,
)
from captioning.evaluation.grounding.scores import (
    ATTENDED,
    CENTRED,
    GAINS,
    Estimate,
    Group,
    curve_differences,
    estimates_json,
    with_intervals,
)
from captioning.evaluation.report import aligned
from captioning.files import write_json
from captioning.maps import ATTENTION
from captioning.metrics.scores import LEVEL

WORDS = 10
"""The hallucinated words below the table; the file contains all."""


@dataclass(frozen=True)
class GroundingReport:
    """Grounding, hallucination and faithfulness of a model's captions.

    Attributes:
        mentions: those of objects that the model's crop shows, with their maps.
        images: the number of mentions of each image.
        map_name: the map that was tested, by its name in `captioning.maps`.
        references: whether the model read the references instead of its own captions.
        milliseconds: the time per word of the map, without what earlier maps of the same words
            have already computed; None if it was not measured.
    """

    mentions: Sequence[GroundedMention]
    images: Sequence[ImageMentions]
    map_name: str = ATTENTION
    references: bool = False
    milliseconds: float | None = None

    @cached_property
    def all(self) -> Group:
        """The scores of all mentions."""
        return Group.of("all", self.mentions)

    @cached_property
    def kinds(self) -> list[Group]:
        """The scores of the mentions of each of `KINDS` of objects."""
        return [
            Group.of(name, [each for each in self.mentions if belongs(each)])
            for name, belongs in KINDS.items()
        ]

    @cached_property
    def words(self) -> list[Group]:
        """The scores of each word's mentions, the most frequent word first."""
        by_word = defaultdict(list)
        for each in self.mentions:
            by_word[each.mention.name].append(each)
        ordered = sorted(by_word.items(), key=lambda item: (-len(item[1]), item[0]))
        return [Group.of(*item) for item in ordered]

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
    def absent(self) -> Counter[str]:
        """The hallucinated words with their counts."""
        return Counter(mention.name for each in self.images for mention in each.absent)

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
        estimates = {**self.all.scores, **self.hallucination}
        return {name: estimate.value for name, estimate in estimates.items()}

    def line(self) -> str:
        """The main scores in a line."""
        scores = {"pointing": self.all.scores.get(POINTING), **self.hallucination}
        return "grounding: " + ", ".join(
            f"{name} {_with_interval(score, '.3f')}" for name, score in scores.items()
        )

    def as_json(self) -> dict[str, Any]:
        """The whole report with every mention, without undefined values and without times."""
        return {
            "images": len(self.images),
            "captions": "references" if self.references else "generated",
            "map": self.map_name,
            "interval": LEVEL,
            "settings": {"Gaussian's sigma": SIGMA, "attention hidden": HIDDEN, "draws": DRAWS},
            "all": self.all.as_json(),
            "kinds": {group.name: group.as_json() for group in self.kinds},
            "unknown": self.unknown,
            "words": {group.name: group.as_json() for group in self.words},
            "hallucination": {
                **estimates_json(self.hallucination),
                "words": dict(self.absent.most_common()),
            },
            "mentions": [_mention_json(each) for each in self.mentions],
        }

    def write(self, path: str | Path) -> None:
        """Write the whole report as JSON."""
        write_json(path, self.as_json())


def maps_json(reports: Mapping[str, GroundingReport], default: str) -> dict[str, Any]:
    """The scores and times of several maps, without the scores of each mention.

    Args:
        reports: of the same words, by the names of the maps.
        default: the map with whose faithfulness that of the others is compared.
    """
    compared = reports.get(default, next(iter(reports.values())))
    found = {}
    for name, report in reports.items():
        scores = {key: value for key, value in report.as_json().items() if key != "mentions"}
        found[name] = {"milliseconds": report.milliseconds, **scores}
        if report is not compared and report.mentions and report.mentions[0].areas:
            differences = curve_differences(report.mentions, compared.mentions)
            found[name][f"minus {compared.map_name}"] = estimates_json(differences)
    return found


def grounding_table(reports: Mapping[str, GroundingReport]) -> str:
    """A line for each map and each baseline, and notes: what the files say in full.

    Args:
        reports: of the same words, by the names of the maps.
    """
    first = next(iter(reports.values()))
    lines = []
    if first.mentions:
        header = ("map", "pointing", "minus Gaussian's", "off middle", "mass", "fall", "overall")
        rows: list[tuple[str, ...]] = [(*header, "ms/word")]
        rows += [(printable(name), *_cells(report, MODEL)) for name, report in reports.items()]
        baselines = (GAUSSIAN, UNIFORM, *([RANDOM] if first.mentions[0].areas else []))
        rows += [(source, *_cells(first, source)) for source in baselines]
        lines.append(aligned(rows))
    lines.append(
        f"{first.all.count} mentions of objects in {len(first.images)} images, "
        f"{first.kinds[0].count} not in the middle; in brackets: {LEVEL * 100:.0f} % intervals"
    )
    if first.unknown:
        lines.append(f"{first.unknown} not tested: the model does not know the word")
    for name, estimate in first.hallucination.items():
        lines.append(f"{name} {_with_interval(estimate, '.3f')}")
    if first.absent:
        words = (f"{word} {count}" for word, count in first.absent.most_common(WORDS))
        lines.append(f"named but not there: {printable(', '.join(words))}")
    return "\n".join(lines)


def _cells(report: GroundingReport, source: str) -> list[str]:
    """The columns of the map or of a baseline; a dash where a score is undefined."""
    every, off = report.all, report.kinds[0]
    gain, drop, cost = None, math.nan, math.nan
    if source == MODEL:
        gain, drop = every.scores.get(GAINS[POINTING]), every.value(ATTENDED)
        cost = math.nan if report.milliseconds is None else report.milliseconds
    elif source == GAUSSIAN:
        drop = every.value(CENTRED)
    return [
        _cell(every.value(POINTING, source), 3),
        _with_interval(gain, "+.3f"),
        _cell(off.value(POINTING, source), 3),
        _cell(every.value(IN_BOX, source), 3),
        _cell(drop, 4),
        _cell(every.value("overall", source), 4),
        _cell(cost, 1),
    ]


def _cell(value: float, digits: int) -> str:
    return "-" if math.isnan(value) else f"{value:.{digits}f}"


def _with_interval(estimate: Estimate | None, form: str) -> str:
    if estimate is None:
        return "-"
    value, (low, high) = estimate
    known = "" if math.isnan(low) else f" ({low:{form}} to {high:{form}})"
    return f"{value:{form}}{known}"


def _mention_json(each: GroundedMention) -> dict[str, Any]:
    scores = {
        source: {name: value for name, value in measures.items() if not math.isnan(value)}
        for source, measures in each.scores.items()
    }
    hidden: dict[str, Any] = {} if each.drops is None else {"falls": each.drops._asdict()}
    if each.areas:
        hidden["areas"] = {source: found._asdict() for source, found in each.areas.items()}
    return {
        "image_id": each.image_id,
        "word": each.mention.name,
        "category": each.mention.category,
        "caption": each.caption,
        "start": each.mention.start,
        **scores,
        **hidden,
    }
