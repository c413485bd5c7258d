from collections.abc import Callable

import numpy as np
import pytest

from captioning.metrics.bleu import bleu_scores
from captioning.metrics.cider import DocumentFrequencies, cider_scores
from captioning.metrics.rouge import rouge_scores
from captioning.metrics.scores import Scorer, Scores, diversity, estimates

CANDIDATES = [caption.split() for caption in ("a dog runs fast", "a cat", "two red birds", "")]
REFERENCES = [
    [caption.split() for caption in several]
    for several in (["a dog runs", "the dog"], ["a cat sits"], ["two birds", "red birds"], ["x"])
]


def cider_of_all(candidates: list[list[str]], references: list[list[list[str]]]) -> Scores:
    return cider_scores(candidates, references, DocumentFrequencies.of(REFERENCES))


@pytest.mark.parametrize("scorer", [bleu_scores, rouge_scores, cider_scores])
def test_an_unknown_word_counts_as_a_word_and_matches_none(scorer: Scorer) -> None:
    known = ["two", "red", "birds", "sit"]
    references = [[["a", "<unk>", "runs", "fast", "<unk>"]], [known]]
    found = [
        scorer([f"a {word} runs fast {word}".split(), known], references).images
        for word in ("<unk>", "never")
    ]
    for unknown, never in zip(*(images.values() for images in found), strict=True):
        assert unknown[0] == pytest.approx(never[0], rel=1e-12)
        assert unknown[0] < unknown[1]


@pytest.mark.parametrize("scores", [bleu_scores, rouge_scores, cider_of_all])
def test_a_resampled_corpus_scores_as_its_images_do_again(
    scores: Callable[..., Scores],
) -> None:
    drawn = [[0, 1, 2, 3], [0, 0, 2, 1], [3, 2, 2, 2]]
    counts = np.array([np.bincount(images, minlength=4) for images in drawn])
    resampled = scores(CANDIDATES, REFERENCES).resampled(counts)
    for number, images in enumerate(drawn):
        again = scores([CANDIDATES[i] for i in images], [REFERENCES[i] for i in images]).corpus
        found = {name: values[number] for name, values in resampled.items()}
        assert found == pytest.approx(again, rel=1e-12)


def test_the_interval_of_a_mean_is_the_normal_distribution_s() -> None:
    values = np.random.default_rng(1).normal(5, 2, size=900)
    value, *interval = estimates(Scores.of("score", values))["score"]
    assert value == values.mean()
    error = 1.96 * values.std() / 30
    assert interval == pytest.approx([value - error, value + error], abs=0.02)


def test_the_same_seed_gives_the_same_interval() -> None:
    scores = Scores.of("score", np.arange(20.0))
    assert estimates(scores, seed=3) == estimates(scores, seed=3)
    assert estimates(scores, seed=3) != estimates(scores, seed=4)


CAPTIONS = [["a", "dog"], ["a", "dog"], ["a", "<unk>", "cat", "sleeps"]]


def test_captions_words_and_lengths_are_counted() -> None:
    found = {
        "images": 3,
        "mean length": pytest.approx(8 / 3),
        "shortest": 2,
        "longest": 4,
        "distinct words": 4,
        "distinct captions": 2,
    }
    assert diversity(CAPTIONS) == found
    found["share of vocabulary"] = pytest.approx(2 / 5)
    assert diversity(CAPTIONS, vocabulary=["a", "dog", "bird", "tree", "house"]) == found


@pytest.mark.parametrize(
    ("training", "share"),
    [(["A dog."], 1 / 3), (["a cat sleeps", "dog a"], 1), (["a dog", "a cat sleeps"], 1 / 3)],
)
def test_captions_that_training_had_word_for_word_are_not_new(
    training: list[str], share: float
) -> None:
    found = diversity(CAPTIONS, training=training)["share not in training"]
    assert found == pytest.approx(share)
