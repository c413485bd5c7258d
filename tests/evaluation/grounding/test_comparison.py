from pathlib import Path

import numpy as np
import pytest

from captioning.data.records import ImageObject
from captioning.evaluation.grounding import GroundingReport, Mention, map_table
from captioning.evaluation.grounding.areas import Place
from captioning.evaluation.grounding.comparison import curve_differences
from captioning.evaluation.grounding.estimates import FALL_TIMES
from captioning.evaluation.grounding.looks import (
    GAUSSIAN,
    MODEL,
    RANDOM,
    Areas,
    Look,
    OcclusionDrops,
)

BASELINES = {GAUSSIAN: Areas(0.3, 0.3), RANDOM: Areas(0.3, 0.3)}
CROP = (0.0, 0.0, 40.0, 40.0)


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
    assert not curve_differences([], [])


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
