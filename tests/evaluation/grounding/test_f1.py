from pathlib import Path

import numpy as np
import pytest

from captioning.data.records import ImageObject
from captioning.evaluation.grounding import Look, Mention
from captioning.evaluation.grounding.areas import Place
from captioning.evaluation.grounding.f1 import F1_ALL, F1_LOC, Naming, f1_scores
from captioning.evaluation.grounding.looks import MODEL

CROP = (0.0, 0.0, 40.0, 40.0)


def look(image: int, category: str, fits: bool) -> Look:
    """A look at an object in the top left quarter, in the right place or the opposite one."""
    thing = ImageObject(category, (0.0, 0.0, 20.0, 20.0), None)
    place = Place.of([thing], (40, 40), CROP, (2, 2))
    assert place is not None
    weights = np.zeros((2, 2))
    weights[(0, 0) if fits else (1, 1)] = 1
    mention = Mention(category, category, 0, 1)
    return Look(image, Path(f"{image}.jpg"), mention, weights, place, CROP, (40, 40))


def test_f1_by_hand() -> None:
    looks = [
        look(1, "dog", True),
        look(2, "dog", False),
        look(2, "cat", True),
        look(3, "car", True),
    ]
    namings = [
        Naming(1, (), frozenset({"dog"})),
        Naming(2, (), frozenset({"dog", "cat"})),
        Naming(3, ("dog",), frozenset({"cat"})),  # names a dog that is not there, and no cat
    ]
    # The car is there, but no reference names it; cars are no category of the references.
    # Precision: dog 1/3 with the absent one, cat 1. Recall: dog 1/2, cat 1/2.
    precision, recall = (1 / 3 + 1) / 2, (1 / 2 + 1 / 2) / 2
    # By place alone: dog 1/2 and cat 1 in both.
    found = f1_scores(looks, namings, MODEL)
    assert found[F1_ALL] == pytest.approx(2 * precision * recall / (precision + recall))
    assert found[F1_LOC] == pytest.approx(3 / 4)


def test_only_the_first_mention_counts_for_recall_and_each_for_precision() -> None:
    looks = [look(1, "dog", True), look(1, "dog", False)]
    found = f1_scores(looks, [Naming(1, (), frozenset({"dog"}))], MODEL)
    assert found[F1_ALL] == found[F1_LOC] == pytest.approx(2 * 0.5 * 1 / 1.5)


def test_what_is_not_defined_is_left_out() -> None:
    assert f1_scores([], [Naming(1, ("dog",), frozenset())], MODEL) == {}
    assert f1_scores([], [Naming(1, (), frozenset({"dog"}))], MODEL) == {F1_ALL: 0}
