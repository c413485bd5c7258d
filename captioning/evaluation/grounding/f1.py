"""F1_all and F1_loc of generated captions (Zhou et al. 2019, "Grounded Video Description").

A word counts where the references name its category and its box fits: the box around the map's
maximum here, where their model chooses among a detector's boxes. Precision is over the words of the
captions, recall over the categories that the references of an image name and that have a box there.
Both are computed for each category and averaged over the categories of all references. F1_loc
leaves out what the other side does not name at all, so that only places count.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from captioning.evaluation.grounding.looks import Look

F1_ALL, F1_LOC = "F1_all", "F1_loc"


class Naming(NamedTuple):
    """The categories that an image's caption names without a place, and what it might have named.

    Attributes:
        image_id: of the record.
        absent: of each mention of what is neither there nor named by any reference.
        wanted: the categories that references name and the model's crop shows.
    """

    image_id: int | str
    absent: tuple[str, ...]
    wanted: frozenset[str]


def f1_scores(looks: Sequence[Look], namings: Iterable[Naming], source: str) -> dict[str, float]:
    """F1_all and F1_loc; undefined ones are left out.

    F1_all is undefined if no reference names anything with a box, F1_loc if no caption names such
    a thing too.

    Args:
        looks: of one generated caption for each image.
        namings: of every image.
        source: which attention's boxes count.
    """
    precision: dict[str, list[float]] = defaultdict(list)  # where a reference has the category
    recall: dict[str, list[float]] = defaultdict(list)
    wrong: dict[str, list[float]] = defaultdict(list)
    missed: dict[str, list[float]] = defaultdict(list)
    of_image: dict[int | str, list[Look]] = defaultdict(list)
    for look in looks:
        of_image[look.image_id].append(look)
    namings = list(namings)
    for image_id, absent, wanted in namings:
        first: dict[str, float] = {}
        for look in of_image[image_id]:
            category, fits = look.mention.category, look.localised[source]
            if category in wanted:
                precision[category].append(fits)
                first.setdefault(category, fits)
            else:
                wrong[category].append(0.0)
        for category in absent:
            wrong[category].append(0.0)
        for category in wanted:
            (recall if category in first else missed)[category].append(first.get(category, 0.0))
    categories = sorted(frozenset().union(*(naming.wanted for naming in namings)))
    if not categories:
        return {}
    found = {F1_ALL: _f1(_mean(categories, precision, wrong), _mean(categories, recall, missed))}
    if precision:
        found[F1_LOC] = _f1(_mean(categories, precision), _mean(categories, recall))
    return found


def _mean(categories: Sequence[str], *hits: Mapping[str, Sequence[float]]) -> float:
    """The mean over categories of the mean of their hits; zero for one without any."""
    each = [[hit for some in hits for hit in some.get(category, ())] for category in categories]
    return float(np.mean([np.mean(found) if found else 0.0 for found in each]))


def _f1(precision: float, recall: float) -> float:
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0
