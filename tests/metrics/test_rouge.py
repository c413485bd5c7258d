import pytest

from captioning.metrics.rouge import rouge_scores


def split(*captions: str) -> list[list[str]]:
    return [caption.split() for caption in captions]


def rouge(candidate: str, *references: str) -> float:
    return rouge_scores(split(candidate), [split(*references)]).corpus["ROUGE-L"]


def mean(precision: float, recall: float) -> float:
    """The harmonic mean in which recall weighs 1.2 squared times as much."""
    return 2.44 / (1 / precision + 1.44 / recall)


def test_words_in_the_same_order_count_and_gaps_do_not_matter() -> None:
    # The longest common subsequence is "a dog runs": 3 of 5 words and 3 of 4.
    assert rouge("a big dog runs away", "a brown dog runs") == pytest.approx(mean(3 / 5, 3 / 4))


def test_precision_and_recall_may_be_of_different_references() -> None:
    # Precision 3 of 3 by the first reference, recall 1 of 1 by the second.
    assert rouge("a dog runs", "a dog that runs fast", "dog") == pytest.approx(1)


def test_the_unknown_word_counts_as_a_word_and_matches_nothing() -> None:
    assert rouge("a <unk> runs", "a <unk> runs") == pytest.approx(2 / 3)
