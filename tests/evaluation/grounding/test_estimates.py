from pathlib import Path

import numpy as np
import pytest

from captioning.data.records import ImageObject
from captioning.evaluation.grounding import GroundingReport, Look, Mention, map_table
from captioning.evaluation.grounding.areas import Place
from captioning.evaluation.grounding.estimates import (
    F1_ALL,
    F1_LOC,
    FALL_TIMES,
    f1_scores,
    with_intervals,
)
from captioning.evaluation.grounding.lexicon import Named
from captioning.evaluation.grounding.looks import GAUSSIAN, MODEL, RANDOM, Areas, OcclusionDrops
from captioning.evaluation.grounding.tables import curve_differences

BASELINES = {GAUSSIAN: Areas(0.3, 0.3), RANDOM: Areas(0.3, 0.3)}
CROP = (0.0, 0.0, 40.0, 40.0)
HITS, TRIES = np.array([3.0, 0.0, 1.0]), np.array([4.0, 0.0, 1.0])


def test_the_corpuss_ratio_is_of_sums_and_no_mean_of_ratios() -> None:
    assert with_intervals({"hits": (HITS, TRIES)})["hits"].value == 4 / 5


def test_a_ratio_that_is_never_defined_is_left_out() -> None:
    assert with_intervals({"hits": (HITS, np.zeros(3))}) == {}


def test_the_interval_contains_the_ratio() -> None:
    rng = np.random.default_rng(0)
    tries = rng.integers(1, 4, 50).astype(np.float64)
    hits = rng.binomial(tries.astype(int), 0.7).astype(float)
    value, (low, high) = with_intervals({"hits": (hits, tries)})["hits"]
    assert low < value < high
    assert high - low == pytest.approx(2 * 1.96 * np.sqrt(0.7 * 0.3 / tries.sum()), rel=0.2)


def look(image: int, deletion: float, attended: float = 0.2, centred: float = 0.1) -> Look:
    """One whose object is in the left half, and whose map is even."""
    dog = ImageObject("dog", (0.0, 0.0, 20.0, 40.0))
    place = Place.of([dog], (40, 40), CROP, (2, 2))
    assert place is not None
    return Look(
        *(image, Path("dog.jpg"), Mention("dog", "dog", 1, 2), np.full((2, 2), 0.25), place),
        *(CROP, (40, 40)),
        drops=OcclusionDrops(0.5, attended, 0.1, centred),
        areas={MODEL: Areas(deletion, 1 - deletion), **BASELINES},
    )


def test_the_difference_is_the_mean_over_words_and_paired_by_image() -> None:
    # By hand: -0.1, -0.1 and -0.4 over three words; were all photos the first one, -0.1.
    one = [look(1, 0.2), look(1, 0.1), look(2, 0.1)]
    other = [look(1, 0.3), look(1, 0.2), look(2, 0.5)]
    found = curve_differences(one, other)
    assert found["deletion"].value == pytest.approx(-0.2)
    assert found["insertion"].value == pytest.approx(0.2)
    assert found["deletion"].interval == pytest.approx((-0.4, -0.1))
    assert found["overall"].value == pytest.approx(0.4)
    assert found["overall"].interval == pytest.approx((0.2, 0.8))


def test_a_map_does_not_differ_from_itself() -> None:
    looks = [look(image, image / 10) for image in range(1, 6)]
    assert curve_differences(looks, looks)["deletion"].interval == pytest.approx((0, 0))


def test_the_table_compares_with_the_map_that_the_model_shows() -> None:
    named = ["attention", "evidence"]
    reports = {
        name: GroundingReport([look(1, area), look(2, area)], [], name)
        for name, area in zip(named, (0.4, 0.1), strict=True)
    }
    lines = map_table(reports, "evidence").splitlines()
    header, attention, after = lines[lines.index("") + 1 :][:3]
    columns = [
        "deletion minus evidence's",
        "insertion minus evidence's",
        "overall minus evidence's",
    ]
    assert [part.strip() for part in header.removeprefix("map").split("  ") if part] == columns
    assert attention.startswith("attention +0.3000 (+0.3000 to +0.3000)")
    assert attention.endswith("-0.6000 (-0.6000 to -0.6000)")
    assert after == ""
    assert "overall minus attention's" in map_table(reports, "gradient")


def test_the_fall_is_told_in_times_of_the_gaussians() -> None:
    report = GroundingReport([look(1, 0.1, 0.3, 0.1), look(2, 0.1, 0.1, 0.1)], [])
    assert report.all.scores[FALL_TIMES].value == pytest.approx(2)


def pointed(image: int, category: str, fits: bool) -> Look:
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
        pointed(1, "dog", True),
        pointed(2, "dog", False),
        pointed(2, "cat", True),
        pointed(3, "car", True),
    ]
    namings = [
        Named(1, 1, wanted=frozenset({"dog"})),
        Named(2, 2, wanted=frozenset({"dog", "cat"})),
        Named(
            3, 2, (Mention("dog", "dog", 1, 2),), wanted=frozenset({"cat"})
        ),  # names a dog that is not there, and no cat
    ]
    # The car is there, but no reference names it; cars are no category of the references.
    # Precision: dog 1/3 with the absent one, cat 1. Recall: dog 1/2, cat 1/2.
    precision, recall = (1 / 3 + 1) / 2, (1 / 2 + 1 / 2) / 2
    # By place alone: dog 1/2 and cat 1 in both.
    found = f1_scores(looks, namings, MODEL)
    assert found[F1_ALL] == pytest.approx(2 * precision * recall / (precision + recall))
    assert found[F1_LOC] == pytest.approx(3 / 4)


def test_only_the_first_mention_counts_for_recall_and_each_for_precision() -> None:
    looks = [pointed(1, "dog", True), pointed(1, "dog", False)]
    found = f1_scores(looks, [Named(1, 1, wanted=frozenset({"dog"}))], MODEL)
    assert found[F1_ALL] == found[F1_LOC] == pytest.approx(2 * 0.5 * 1 / 1.5)


def test_what_is_not_defined_is_left_out() -> None:
    assert f1_scores([], [Named(1, 1, (Mention("dog", "dog", 1, 2),))], MODEL) == {}
    assert f1_scores([], [Named(1, 1, wanted=frozenset({"dog"}))], MODEL) == {F1_ALL: 0}
