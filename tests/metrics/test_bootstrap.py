import numpy as np
import pytest

from captioning.metrics.bleu import bleu_scores
from captioning.metrics.bootstrap import intervals
from captioning.metrics.scores import Scores


def test_the_interval_of_a_mean_is_that_of_the_normal_distribution() -> None:
    values = np.random.default_rng(1).normal(5, 2, size=900)
    interval = intervals([Scores.of("score", values)], 900)["score"]
    error = 1.96 * values.std() / 30
    assert interval == pytest.approx((values.mean() - error, values.mean() + error), abs=0.02)


def test_the_interval_of_equal_values_is_a_point() -> None:
    assert intervals([Scores.of("score", np.full(50, 0.25))], 50)["score"] == pytest.approx(
        (0.25, 0.25)
    )


def test_the_same_seed_gives_the_same_interval_whatever_the_blocks() -> None:
    scores = [Scores.of("score", np.arange(20.0))]
    at_once = intervals(scores, 20, seed=3)
    assert intervals(scores, 20, seed=3, block=130) == at_once
    assert intervals(scores, 20, seed=4) != at_once


def test_the_interval_of_bleu_holds_the_score_of_the_corpus() -> None:
    candidates = [["a", "dog", "runs"], ["a", "cat"], ["two", "red", "birds"]] * 10
    references = [[["a", "dog", "sits"]], [["one", "cat"]], [["two", "birds", "sing"]]] * 10
    scores = bleu_scores(candidates, references)
    interval = intervals([scores], 30)["BLEU-1"]
    assert interval.low < scores.corpus["BLEU-1"] < interval.high
