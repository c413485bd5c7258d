import pytest

from captioning.errors import InputError
from captioning.metrics.bleu import corpus_bleu
from captioning.metrics.report import score, table


def test_case_and_punctuation_do_not_matter() -> None:
    scores = score({1: "A dog, on the BEACH."}, {1: ["a dog on the beach"]})
    assert scores["BLEU-4"] == pytest.approx(1, rel=1e-8)


def test_captions_meet_the_references_of_their_own_image() -> None:
    captions = {"x.jpg": "a red bus", "y.jpg": "two brown dogs"}
    references = {"y.jpg": ["two brown dogs"], "unseen.jpg": ["a"], "x.jpg": ["a red bus"]}
    assert score(captions, references)["BLEU-1"] == pytest.approx(1, rel=1e-8)


def test_the_scores_are_the_corpus_bleu_of_the_words() -> None:
    scores = score({1: "a dog runs", 2: "a cat"}, {1: ["a dog sits"], 2: ["one cat", "a bat"]})
    words = [["a", "dog", "runs"], ["a", "cat"]]
    references = [[["a", "dog", "sits"]], [["one", "cat"], ["a", "bat"]]]
    assert tuple(scores[f"BLEU-{n}"] for n in (1, 2, 3, 4)) == corpus_bleu(words, references)


def test_images_distinct_captions_and_words_are_counted() -> None:
    captions = {1: "A dog.", 2: "a dog", 3: "a small brown cat sleeps"}
    scores = score(captions, {image: ["a dog"] for image in captions})
    assert (scores["images"], scores["distinct captions"], scores["mean length"]) == (3, 2, 3)


def test_the_unknown_word_is_one_word_that_matches_nothing() -> None:
    scores = score({1: "a <unk> runs"}, {1: ["a <unk> runs"]})
    # The reference has <, unk, > in place of the word, hence five words against three.
    assert scores["mean length"] == 3
    assert scores["BLEU-1"] == pytest.approx(2 / 3 * 2.718281828459045 ** (1 - 5 / 3), rel=1e-8)


@pytest.mark.parametrize("references", [{7: ["a dog"]}, {7: ["a dog"], 42: []}])
def test_an_image_without_references_is_named(references: dict[int, list[str]]) -> None:
    with pytest.raises(InputError, match="image 42 has a caption but no reference"):
        score({7: "a dog", 42: "a cat"}, references)


def test_no_captions_at_all_are_an_error() -> None:
    with pytest.raises(InputError, match="no captions to score"):
        score({}, {1: ["a dog"]})


def test_the_table_aligns_names_left_and_numbers_right() -> None:
    scores = {"BLEU-4": 0.0, "images": 1000.0, "distinct captions": 12.0, "mean length": 10.0}
    assert table(scores).splitlines() == [
        "BLEU-4              0.0000",
        "images                1000",
        "distinct captions       12",
        "mean length        10.0000",
    ]
