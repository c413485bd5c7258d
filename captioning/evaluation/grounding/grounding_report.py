"""The grounding report of one map: its scores, and as JSON."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from captioning.evaluation.grounding.estimates import (
    Estimate,
    Group,
    estimates_json,
    f1_scores,
    named,
    with_intervals,
)
from captioning.evaluation.grounding.faithfulness import DRAWS, HIDDEN
from captioning.evaluation.grounding.lexicon import Named
from captioning.evaluation.grounding.looks import GAUSSIAN, KINDS, MODEL, OVERLAP, SIGMA, Look
from captioning.files import write_json
from captioning.maps import ATTENTION
from captioning.metrics.scores import LEVEL


@dataclass(frozen=True)
class GroundingReport:
    """Grounding, hallucination and faithfulness of a model's captions.

    Attributes:
        looks: one for each mention of an object that the model's crop shows.
        named: the objects that each image's captions name.
        map_name: the map that was tested, by its name in `captioning.maps`.
        references: whether the model read the references instead of its own captions.
        milliseconds: the time per word of the map, without what earlier maps of the same words
            have already computed; None if it was not measured.
    """

    looks: Sequence[Look]
    named: Sequence[Named]
    map_name: str = ATTENTION
    references: bool = False
    milliseconds: float | None = None

    @cached_property
    def all(self) -> Group:
        """The scores of all looks."""
        return Group.of("all", self.looks)

    @cached_property
    def kinds(self) -> list[Group]:
        """The scores of the looks at each of `KINDS` of objects."""
        return [
            Group.of(name, [look for look in self.looks if belongs(look)])
            for name, belongs in KINDS.items()
        ]

    @cached_property
    def words(self) -> list[Group]:
        """The scores of each word's looks, the most frequent word first."""
        names = Counter(look.mention.name for look in self.looks)
        return [
            Group.of(name, [look for look in self.looks if look.mention.name == name])
            for name, _ in sorted(names.items(), key=lambda item: (-item[1], item[0]))
        ]

    @cached_property
    def f1(self) -> dict[str, float]:
        """F1_all and F1_loc (`f1_scores`) of the map and of the Gaussian; empty for references."""
        if self.references:
            return {}
        return {
            named(name, source): value
            for source in (MODEL, GAUSSIAN)
            for name, value in f1_scores(self.looks, self.named, source).items()
        }

    @cached_property
    def hallucination(self) -> dict[str, Estimate]:
        """CHAIR (Rohrbach et al. 2018): the share of hallucinated mentions, and of captions.

        CHAIR-i is omitted if no caption names anything; both are omitted for references.
        """
        if self.references:
            return {}
        absent = np.array([len(each.absent) for each in self.named], dtype=np.float64)
        mentions = np.array([each.mentions for each in self.named], dtype=np.float64)
        naming = mentions > 0
        by_mention = (absent[naming], mentions[naming])
        by_caption = (np.sign(absent), np.ones_like(absent))
        return with_intervals({"CHAIR-i": by_mention}) | with_intervals({"CHAIR-s": by_caption})

    @property
    def absent(self) -> Counter[str]:
        """The hallucinated words with their counts."""
        return Counter(mention.name for each in self.named for mention in each.absent)

    @property
    def unknown(self) -> int:
        """The number of mentions that are not tested, since the model does not know a word."""
        return sum(each.unknown for each in self.named)

    def ranked(self, worst: bool = False) -> list[Look]:
        """The best (or worst) look of each image, ordered by the gain over a uniform map."""
        first: dict[int | str, Look] = {}
        for look in sorted(self.looks, key=lambda look: look.gain if worst else -look.gain):
            first.setdefault(look.image_id, look)
        return list(first.values())

    @property
    def summary(self) -> dict[str, float]:
        """All scores of all looks, without intervals."""
        estimates = {**self.all.scores, **self.hallucination}
        values = {name: estimate.value for name, estimate in estimates.items()}
        return {**values, **self.f1}

    def as_json(self) -> dict[str, Any]:
        """The whole report with every look; without undefined values and times, which vary."""
        return {
            "images": len(self.named),
            "captions": "references" if self.references else "generated",
            "map": self.map_name,
            "interval": LEVEL,
            "settings": {
                "Gaussian's sigma": SIGMA,
                "attention hidden": HIDDEN,
                "draws": DRAWS,
                "overlap": OVERLAP,
            },
            "all": self.all.as_json(),
            "kinds": {group.name: group.as_json() for group in self.kinds},
            "F1": self.f1,
            "unknown": self.unknown,
            "words": {group.name: group.as_json() for group in self.words},
            "hallucination": {
                **estimates_json(self.hallucination),
                "words": dict(self.absent.most_common()),
            },
            "mentions": [_look_json(look) for look in self.looks],
        }

    def write(self, path: str | Path) -> None:
        """Write the whole report as JSON."""
        write_json(path, self.as_json())


def _look_json(look: Look) -> dict[str, Any]:
    scores = {
        source: {name: value for name, value in measures.items() if not np.isnan(value)}
        for source, measures in look.scores.items()
    }
    hidden: dict[str, Any] = {} if look.drops is None else {"falls": look.drops._asdict()}
    if look.areas:
        hidden["areas"] = {source: found._asdict() for source, found in look.areas.items()}
    return {
        "image_id": look.image_id,
        "word": look.mention.name,
        "category": look.mention.category,
        "caption": look.caption,
        "start": look.mention.start,
        **scores,
        **hidden,
    }
