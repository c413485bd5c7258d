import pytest

from captioning.metrics.scores import variety

CANDIDATES = [["a", "dog"], ["a", "dog"], ["a", "<unk>", "cat", "sleeps"]]


def test_captions_words_and_lengths_are_counted() -> None:
    assert variety(CANDIDATES) == {
        "images": 3,
        "mean length": pytest.approx(8 / 3),
        "shortest": 2,
        "longest": 4,
        "distinct words": 4,
        "distinct captions": 2,
    }


def test_the_share_of_the_vocabulary_is_that_of_its_words_that_are_used() -> None:
    found = variety(CANDIDATES, vocabulary=["a", "dog", "bird", "tree", "house"])
    assert found["share of vocabulary"] == pytest.approx(2 / 5)


@pytest.mark.parametrize(
    ("training", "share"),
    [(["A dog."], 1 / 3), (["a cat sleeps", "dog a"], 1), (["a dog", "a cat sleeps"], 1 / 3)],
)
def test_captions_that_training_had_word_for_word_are_not_new(
    training: list[str], share: float
) -> None:
    found = variety(CANDIDATES, training=training)["share not in training"]
    assert found == pytest.approx(share)
