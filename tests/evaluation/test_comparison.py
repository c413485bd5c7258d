"""The test of two systems' difference, beside SciPy's on the same captions."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from captioning.evaluation.comparison import (
    Comparison,
    compare_scores,
    comparison_table,
    two_sided_p_value,
)
from captioning.metrics import scores
from captioning.metrics.bleu import bleu_scores
from captioning.metrics.cider import cider_scores
from captioning.metrics.rouge import rouge_scores
from captioning.metrics.scores import Scores

IMAGES = 120
WORDS = [f"word{number}" for number in range(18)]
SCORERS: list[Callable[..., Scores]] = [bleu_scores, rouge_scores, cider_scores]

Captions = list[list[str]]


def varied(rng: random.Random, words: list[str], rate: float) -> list[str]:
    """The words, of which a share is replaced by others."""
    return [word if rng.random() > rate else rng.choice(WORDS) for word in words]


@pytest.fixture(scope="module")
def world() -> dict[float, Any]:
    """References of each image, and captions with words wrong at several rates."""
    rng = random.Random(0)
    truth = [[rng.choice(WORDS) for _ in range(rng.randint(7, 12))] for _ in range(IMAGES)]
    captions: dict[float, Any] = {
        0.0: [[varied(rng, words, 0.25) for _ in range(5)] for words in truth]
    }
    for rate in (0.35, 0.40, 0.41, 0.6, 0.48, 0.47):
        captions[rate] = [varied(rng, words, rate) for words in truth]
    return captions


def compare(
    world: dict[float, Any], first: float, second: float, **options: Any
) -> dict[str, Comparison]:
    one, other = (
        Scores.joined([score(world[rate], world[0.0]) for score in SCORERS])
        for rate in (first, second)
    )
    return compare_scores(one, other, **options)


def images_of(world: dict[float, Any], rate: float) -> NDArray[np.float64]:
    return cider_scores(world[rate], world[0.0]).images["CIDEr"]


def gain(one: NDArray[Any], other: NDArray[Any], axis: int) -> NDArray[Any]:
    return np.asarray(np.mean(other - one, axis=axis))


def test_intervals_and_p_values_are_of_scipys_paired_bootstrap(world: dict[float, Any]) -> None:
    pytest.importorskip("scipy", "1.15")  # the first with the argument rng
    options: dict[str, Any] = {"paired": True, "method": "percentile", "n_resamples": 10_000}
    images, rng = [images_of(world, rate) for rate in (0.41, 0.40)], np.random.default_rng(1)
    expected = stats.bootstrap(images, gain, vectorized=True, rng=rng, **options)
    difference = compare(world, 0.41, 0.40, samples=10_000)["CIDEr"]
    bounds, error = expected.confidence_interval, float(expected.standard_error)
    assert difference.interval == pytest.approx(tuple(bounds), abs=0.1 * error)
    beyond = (expected.bootstrap_distribution < 0).mean()
    assert 0.005 < beyond < 0.5
    assert difference.p_value == pytest.approx(2 * min(beyond, 1 - beyond), abs=0.05)


def test_equal_systems_have_a_p_value_of_one(world: dict[float, Any]) -> None:
    for comparison in compare(world, 0.40, 0.40).values():
        assert comparison.p_value == 1
        assert comparison.interval == (0, 0)


def test_blocks_do_not_change_the_results(
    world: dict[float, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    comparisons = compare(world, 0.40, 0.35, samples=50)
    monkeypatch.setattr(scores, "MAX_COUNTS", 7 * IMAGES)
    for name, other in compare(world, 0.40, 0.35, samples=50).items():
        assert comparisons[name].interval == pytest.approx(other.interval)
        assert comparisons[name].p_value == other.p_value


def test_p_values_agree_with_their_intervals_and_hold_for_equally_good_systems() -> None:
    rng, p_values = np.random.default_rng(3), []
    for seed in range(300):
        first, second = (Scores.of("score", rng.normal(size=40)) for _ in range(2))
        difference = compare_scores(first, second, samples=999, seed=seed)["score"]
        low, high = difference.interval
        if abs(difference.p_value - 0.05) > 0.005:
            assert (difference.p_value < 0.05) == (low > 0 or high < 0)
        p_values.append(difference.p_value)
    assert 0.02 < np.mean(np.array(p_values) <= 0.05) < 0.085


def test_p_values_worked_out_by_hand() -> None:
    assert two_sided_p_value(np.array([-1.0, 1.0, 2.0, 3.0])) == 2 * (1 + 1) / (4 + 1)
    assert two_sided_p_value(np.arange(1.0, 100.0)) == 2 * (0 + 1) / (99 + 1)
    assert two_sided_p_value(np.zeros(9)) == 1


NOTE = "A: a.json; B: b.json; 2 images"
TABLE = [
    "             A       B    B - A       95 % interval  p-value",
    "BLEU-1  0.2500  0.1250  -0.1250  -0.2500 to +0.5000   0.2500",
    NOTE,
]


def test_the_table_for_people() -> None:
    comparisons = {"BLEU-1": Comparison(0.25, 0.125, (-0.25, 0.5), 0.25)}
    assert comparison_table(comparisons, NOTE).splitlines() == TABLE
