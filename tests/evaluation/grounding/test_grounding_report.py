from pathlib import Path

import numpy as np
import pytest

from captioning.data.records import ImageObject
from captioning.evaluation.grounding import (
    GroundedMention,
    GroundingReport,
    Mention,
    grounding_table,
    maps_json,
)
from captioning.evaluation.grounding.areas import Place
from captioning.evaluation.grounding.lexicon import ImageMentions
from captioning.evaluation.grounding.mentions import (
    GAUSSIAN,
    MODEL,
    RANDOM,
    CurveAreas,
    OcclusionDrops,
)
from captioning.evaluation.grounding.scores import DROP_TIMES, curve_differences, with_intervals

BASELINES = {GAUSSIAN: CurveAreas(0.3, 0.3), RANDOM: CurveAreas(0.3, 0.3)}
CROP = (0.0, 0.0, 40.0, 40.0)
HITS, TRIES = np.array([3.0, 0.0, 1.0]), np.array([4.0, 0.0, 1.0])


def test_a_corpus_ratio_is_of_sums_not_a_mean_of_ratios() -> None:
    assert with_intervals({"hits": (HITS, TRIES)})["hits"].value == 4 / 5
    assert with_intervals({"hits": (HITS, np.zeros(3))}) == {}


def test_the_interval_has_the_width_of_a_binomial() -> None:
    rng = np.random.default_rng(0)
    tries = rng.integers(1, 4, 50).astype(np.float64)
    hits = rng.binomial(tries.astype(int), 0.7).astype(float)
    value, (low, high) = with_intervals({"hits": (hits, tries)})["hits"]
    assert low < value < high
    assert high - low == pytest.approx(2 * 1.96 * np.sqrt(0.7 * 0.3 / tries.sum()), rel=0.2)


def mention(
    image: int, deletion: float, attended: float = 0.2, centred: float = 0.1
) -> GroundedMention:
    """One whose object is in the left half, and whose map is even."""
    dog = ImageObject("dog", (0.0, 0.0, 20.0, 40.0))
    place = Place.of([dog], (40, 40), CROP, (2, 2))
    assert place is not None
    return GroundedMention(
        *(image, Path("dog.jpg"), Mention("dog", "dog", 1, 2), np.full((2, 2), 0.25), place),
        *(CROP, (40, 40)),
        drops=OcclusionDrops(0.5, attended, 0.1, centred),
        areas={MODEL: CurveAreas(deletion, 1 - deletion), **BASELINES},
    )


def test_a_difference_is_a_mean_over_words_paired_by_image() -> None:
    # By hand: -0.1, -0.1 and -0.4 over three words; were all photos the first one, -0.1.
    one = [mention(1, 0.2), mention(1, 0.1), mention(2, 0.1)]
    other = [mention(1, 0.3), mention(1, 0.2), mention(2, 0.5)]
    found = curve_differences(one, other)
    assert found["deletion"].value == pytest.approx(-0.2)
    assert found["insertion"].value == pytest.approx(0.2)
    assert found["deletion"].interval == pytest.approx((-0.4, -0.1))
    assert found["overall"].value == pytest.approx(0.4)
    assert found["overall"].interval == pytest.approx((0.2, 0.8))
    assert curve_differences(one, one)["deletion"].interval == pytest.approx((0, 0))


def test_the_drop_is_told_in_times_of_the_gaussians() -> None:
    report = GroundingReport([mention(1, 0.1, 0.3, 0.1), mention(2, 0.1, 0.1, 0.1)], [])
    assert report.all.scores[DROP_TIMES].value == pytest.approx(2)


def test_maps_are_compared_with_the_map_that_the_model_shows() -> None:
    reports = {
        name: GroundingReport([mention(1, area), mention(2, area)], [], name)
        for name, area in (("attention", 0.4), ("evidence", 0.1))
    }
    found = maps_json(reports, "evidence")
    assert found["attention"]["minus evidence"]["overall"]["value"] == pytest.approx(-0.6)
    assert not [key for key in found["evidence"] if key.startswith("minus")]
    assert "minus attention" in maps_json(reports, "gradient")["evidence"]


def test_the_table_has_a_line_per_map_and_fits_100_columns() -> None:
    names = ("attention-evidence", "layer 12 head 16")
    reports = {name: GroundingReport([mention(1, 0.4)], [], name, False, 123.4) for name in names}
    table = grounding_table(reports).splitlines()
    assert [line.split("  ")[0] for line in table[1:6]] == [*names, GAUSSIAN, "uniform", RANDOM]
    assert max(map(len, table)) <= 100


def test_a_report_without_mentions_has_notes_only() -> None:
    counts = [ImageMentions(1, 1, (Mention("dog", "dog", 1, 2),)), ImageMentions(2, 0)]
    report = GroundingReport([], counts)
    assert report.as_json()["all"] == {"mentions": 0}
    assert report.summary == {"CHAIR-i": 1, "CHAIR-s": 0.5}
    table = grounding_table({"attention": report}).splitlines()
    assert table[0].startswith("0 mentions of objects in 2 images")
    assert table[-1] == "named but not there: dog 1"
