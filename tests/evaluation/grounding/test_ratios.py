import numpy as np
import pytest

from captioning.evaluation.grounding.ratios import Ratios
from captioning.metrics.scores import intervals

HITS, TRIES = np.array([3.0, 0.0, 1.0]), np.array([4.0, 0.0, 1.0])


def test_the_corpuss_ratio_is_of_sums_and_no_mean_of_ratios() -> None:
    ratios = Ratios.of_pairs({"hits": (HITS, TRIES)})
    assert ratios.corpus == {"hits": 4 / 5}
    np.testing.assert_array_equal(ratios.images["hits"], [0.75, np.nan, 1.0])


def test_a_resample_with_every_image_equally_often_has_the_same_ratio() -> None:
    ratios = Ratios.of_pairs({"hits": (HITS, TRIES)})
    found = ratios.resampled(np.array([[2, 2, 2], [1, 0, 4], [0, 1, 0]]))["hits"]
    np.testing.assert_allclose(found, [4 / 5, 7 / 8, np.nan])


def test_a_ratio_that_is_never_defined_is_left_out() -> None:
    assert Ratios.of_pairs({"hits": (HITS, np.zeros(3))}).corpus == {}


def test_the_interval_contains_the_ratio() -> None:
    rng = np.random.default_rng(0)
    tries = rng.integers(1, 4, 50).astype(np.float64)
    ratios = Ratios.of_pairs({"hits": (rng.binomial(tries.astype(int), 0.7).astype(float), tries)})
    low, high = intervals([ratios], 50)["hits"]
    assert low < ratios.corpus["hits"] < high
    assert high - low == pytest.approx(2 * 1.96 * np.sqrt(0.7 * 0.3 / tries.sum()), rel=0.2)
