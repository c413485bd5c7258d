from collections.abc import Callable

import numpy as np
import pytest

from captioning.metrics.bleu import bleu_scores
from captioning.metrics.cider import DocumentFrequencies, cider_scores
from captioning.metrics.rouge import rouge_scores
from captioning.metrics.scores import Scores, intervals

CANDIDATES = [caption.split() for caption in ("a dog runs fast", "a cat", "two red birds", "")]
REFERENCES = [
    [caption.split() for caption in several]
    for several in (["a dog runs", "the dog"], ["a cat sits"], ["two birds", "red birds"], ["x"])
]


def cider_of_all(candidates: list[list[str]], references: list[list[list[str]]]) -> Scores:
    return cider_scores(candidates, references, DocumentFrequencies.of(REFERENCES))


@pytest.mark.parametrize("scores", [bleu_scores, rouge_scores, cider_of_all])
def test_a_resampled_corpus_scores_as_if_its_images_were_scored_again(
    scores: Callable[..., Scores],
) -> None:
    drawn = [[0, 1, 2, 3], [0, 0, 2, 1], [3, 2, 2, 2]]
    counts = np.array([np.bincount(images, minlength=4) for images in drawn])
    resampled = scores(CANDIDATES, REFERENCES).resampled(counts)
    for number, images in enumerate(drawn):
        again = scores([CANDIDATES[i] for i in images], [REFERENCES[i] for i in images]).corpus
        found = {name: values[number] for name, values in resampled.items()}
        assert found == pytest.approx(again, rel=1e-12)


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
