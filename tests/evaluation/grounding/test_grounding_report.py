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
from captioning.evaluation.grounding.grounding_report import Ratio, with_intervals
from captioning.evaluation.grounding.lexicon import ImageMentions
from captioning.evaluation.grounding.targets import (
    ATTENDED,
    CENTRED,
    DROPS,
    FAITHFULNESS,
    Target,
    map_values,
    score_name,
)

CROP = (0.0, 0.0, 40.0, 40.0)
HITS, TRIES = np.array([3.0, 0.0, 1.0]), np.array([4.0, 0.0, 1.0])


def test_a_corpus_ratio_is_of_sums_not_a_mean_of_ratios() -> None:
    assert with_intervals({"hits": Ratio(HITS, TRIES)})["hits"].value == 4 / 5
    assert with_intervals({"hits": Ratio(HITS, np.zeros(3))}) == {}


def test_the_interval_has_the_width_of_a_binomial() -> None:
    rng = np.random.default_rng(0)
    tries = rng.integers(1, 4, 50).astype(np.float64)
    hits = rng.binomial(tries.astype(int), 0.7).astype(float)
    value, low, high = with_intervals({"hits": Ratio(hits, tries)})["hits"]
    assert low < value < high
    assert high - low == pytest.approx(2 * 1.96 * np.sqrt(0.7 * 0.3 / tries.sum()), rel=0.2)


def mention(
    image: int, deletion: float, attended: float = 0.2, centred: float = 0.1
) -> GroundedMention:
    """One whose object is in the left half, and whose map is even."""
    dog = ImageObject("dog", (0.0, 0.0, 20.0, 40.0))
    target, weights = Target.of([dog], size=(40, 40), crop=CROP, grid=(2, 2)), np.full((2, 2), 0.25)
    assert target is not None
    values = map_values(weights, target) | dict.fromkeys(DROPS, 0.1)
    values |= {ATTENDED: attended, CENTRED: centred}
    for source in ("Gaussian", "random"):
        values |= {score_name(measure, source): 0.3 for measure in FAITHFULNESS}
    values |= zip(FAITHFULNESS, (deletion, 1 - deletion, 1 - 2 * deletion), strict=True)
    words = Mention("dog", "dog", 1, 2)
    return GroundedMention(image, Path("dog.jpg"), 0, words, target, weights, values)


def test_a_difference_is_a_mean_over_words_paired_by_image() -> None:
    # By hand: -0.1, -0.1 and -0.4 over three words; were all photos the first one, -0.1.
    one = GroundingReport([mention(1, 0.2), mention(1, 0.1), mention(2, 0.1)], [], "occlusion")
    other = GroundingReport([mention(1, 0.3), mention(1, 0.2), mention(2, 0.5)], [], "evidence")
    content = maps_json({"evidence": other, "occlusion": one}, "evidence")
    assert not [key for key in content["evidence"] if key.startswith("minus")]
    differences = content["occlusion"]["minus evidence"]
    assert differences["deletion"] == pytest.approx({"value": -0.2, "low": -0.4, "high": -0.1})
    assert differences["insertion"]["value"] == pytest.approx(0.2)
    assert differences["overall"] == pytest.approx({"value": 0.4, "low": 0.2, "high": 0.8})


def test_the_drop_is_told_in_times_of_the_gaussians() -> None:
    report = GroundingReport([mention(1, 0.1, 0.3, 0.1), mention(2, 0.1, 0.1, 0.1)], [])
    assert report.scores["fall, times the Gaussian's"].value == pytest.approx(2)


def test_the_table_has_a_line_per_map_and_fits_100_columns() -> None:
    names = ("attention-evidence", "layer 12 head 16")
    reports = {name: GroundingReport([mention(1, 0.4)], [], name, False, 123.4) for name in names}
    table = grounding_table(reports).splitlines()
    assert [line.split("  ")[0] for line in table[1:6]] == [*names, "Gaussian", "uniform", "random"]
    assert max(map(len, table)) <= 100


def test_a_report_without_mentions_has_hallucinations_only() -> None:
    counts = [ImageMentions(1, (Mention("dog", "dog", 1, 2),)), ImageMentions(0)]
    report = GroundingReport([], counts)
    assert report.as_json()["all"] == {"mentions": 0}
    assert report.summary == {"CHAIR-i": 1, "CHAIR-s": 0.5}
    assert report.as_json()["hallucination"]["words"] == {"dog": 1}
    notes = grounding_table({"attention": report}).splitlines()[-1]
    assert notes.startswith("0 mentions of objects in 2 images")
    assert notes.endswith("CHAIR-i 1.000; CHAIR-s 0.500")
