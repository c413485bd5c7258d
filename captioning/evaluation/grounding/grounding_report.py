"""The grounding report: as numbers, as a table, and in a file."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from captioning.evaluation.grounding.estimates import (
    Estimate,
    Group,
    estimates_json,
    with_intervals,
)
from captioning.evaluation.grounding.f1 import Naming, f1_scores
from captioning.evaluation.grounding.faithfulness import DRAWS, HIDDEN
from captioning.evaluation.grounding.kinds import KINDS
from captioning.evaluation.grounding.looks import GAUSSIAN, MODEL, OVERLAP, POINTING, SIGMA, Look
from captioning.files import write_json
from captioning.maps import ATTENTION
from captioning.metrics.scores import LEVEL


class Named(NamedTuple):
    """The objects that one image's caption names, or all of its captions.

    Attributes:
        mentions: how many mentions of objects it has.
        absent: the mentioned words whose objects are not in the picture.
        unknown: how many mentions have a word that the model does not know.
        naming: their categories; None if they are not known.
    """

    mentions: int
    absent: tuple[str, ...]
    unknown: int = 0
    naming: Naming | None = None


@dataclass(frozen=True)
class GroundingReport:
    """Grounding, hallucination and faithfulness of a model's captions.

    Attributes:
        looks: one for every mention of an object that the model's crop shows.
        named: the objects that each image's captions name.
        map_name: which map of a word was tested, by its name in `captioning.maps`.
        references: whether the model read the references, rather than its own captions.
        milliseconds: what a map costs for each word that was read, beyond what an earlier map of
            the same words has computed; None if nobody measured it.
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
        """The scores of the looks at each kind of object; see `KINDS`."""
        return [
            Group.of(name, [look for look in self.looks if belongs(look)])
            for name, belongs in KINDS.items()
        ]

    @cached_property
    def f1(self) -> dict[str, float]:
        """F1_all and F1_loc of Zhou et al. 2019, and of the Gaussian; none for references."""
        namings = [named.naming for named in self.named if named.naming is not None]
        if self.references or not namings:
            return {}
        gaussian = f1_scores(self.looks, namings, GAUSSIAN)
        return f1_scores(self.looks, namings, MODEL) | {
            f"{name}, {GAUSSIAN}": value for name, value in gaussian.items()
        }

    @property
    def unknown(self) -> int:
        """How many mentions have a word that the model does not know; they are not tested."""
        return sum(named.unknown for named in self.named)

    @cached_property
    def words(self) -> list[Group]:
        """The scores of each word's looks, the most frequent word first."""
        names = Counter(look.mention.name for look in self.looks)
        return [
            Group.of(name, [look for look in self.looks if look.mention.name == name])
            for name, _ in sorted(names.items(), key=lambda item: (-item[1], item[0]))
        ]

    @cached_property
    def hallucination(self) -> dict[str, Estimate]:
        """CHAIR of Rohrbach et al. 2018: the share of mentions (CHAIR-i) and captions (CHAIR-s).

        CHAIR-i is missing where no caption names anything, and both for references.
        """
        if self.references:
            return {}
        absent = np.array([len(named.absent) for named in self.named], dtype=np.float64)
        mentions = np.array([named.mentions for named in self.named], dtype=np.float64)
        naming = mentions > 0
        captions = (np.sign(absent), np.ones_like(absent))
        by_mention = (absent[naming], mentions[naming])
        return with_intervals({"CHAIR-i": by_mention}) | with_intervals({"CHAIR-s": captions})

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
        """The whole report as plain values, including every look; undefined values are left out.

        Times are too: the same model's report is the same file.
        """
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
        return {name: estimate.value for name, estimate in estimates.items()} | {
            **self.f1,
            **self.whereabouts,
        }


def _one_per_image(looks: Sequence[Look]) -> list[Look]:
    first: dict[int | str, Look] = {}
    for look in looks:
        first.setdefault(look.image_id, look)
    return list(first.values())


def _as_json(look: Look) -> dict[str, Any]:
    scores: dict[str, Any] = {
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
