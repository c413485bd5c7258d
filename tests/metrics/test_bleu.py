import math
import random

import pytest

from captioning.metrics.bleu import Statistics, bleu, corpus_bleu, statistics


def split(*captions: str) -> list[list[str]]:
    return [caption.split() for caption in captions]


def test_a_repeated_word_counts_only_as_often_as_one_reference_has_it() -> None:
    # Papineni et al. 2002, example 2: two of seven, and no penalty since a reference has 7 words.
    references = split("the cat is on the mat", "there is a cat on the mat")
    (bleu_1,) = corpus_bleu(split("the the the the the the the"), [references], max_n=1)
    assert bleu_1 == pytest.approx(2 / 7, rel=1e-8)


def test_a_short_caption_pays_for_its_brevity() -> None:
    scores = corpus_bleu(split("a dog"), [split("a dog runs fast")], max_n=2)
    assert scores == pytest.approx((math.exp(-1), math.exp(-1)), rel=1e-8)


def test_bleu_is_the_geometric_mean_of_the_precisions() -> None:
    # Words: 5 of 6 match; pairs: 3 of 5 (a man, in red); triples: 1 of 4; fours: none.
    candidate, reference = "a man rides in red trousers", "a man rides dressed in red"
    scores = corpus_bleu(split(candidate), [split(reference)])
    expected = (5 / 6, (5 / 6 * 3 / 5) ** (1 / 2), (5 / 6 * 3 / 5 * 1 / 4) ** (1 / 3))
    assert scores[:3] == pytest.approx(expected, rel=1e-8)
    assert scores[3] < 1e-3


def test_a_caption_that_is_a_reference_scores_one() -> None:
    references = split("two dogs", "a brown dog runs on the beach")
    assert corpus_bleu([references[1]], [references]) == pytest.approx((1, 1, 1, 1), rel=1e-8)


def test_of_two_equally_close_references_the_shorter_sets_the_length() -> None:
    references = split("one two three four five", "one two three")
    assert statistics(["one", "two", "three", "four"], references).reference_length == 3


def test_counts_are_summed_over_the_corpus_before_they_are_divided() -> None:
    # 1 of 1 and 0 of 3 make 1 of 4; the mean over captions would be a half.
    candidates, references = split("dog", "x y z"), [split("dog"), split("a b c")]
    assert corpus_bleu(candidates, references, max_n=1) == pytest.approx((1 / 4,), rel=1e-8)


def test_the_unknown_word_matches_nothing() -> None:
    with_unknown = statistics(["a", "<unk>", "a", "b"], split("a <unk> a b"))
    assert with_unknown == Statistics((3, 1, 0, 0), (4, 3, 2, 1), 4, 4)


def test_statistics_of_captions_sum_to_those_of_the_corpus() -> None:
    candidates = split("a dog", "the red cat sits")
    references = [split("a dog runs", "a dog"), split("the cat sits here")]
    first, second = map(statistics, candidates, references)
    assert bleu(first + second) == corpus_bleu(candidates, references)


ODD = {
    "an empty caption": ("", ["a dog runs", "two"]),
    "an empty reference": ("a dog", ["", "a dog"]),
    "nothing on either side": ("", [""]),
    "one word": ("dog", ["dog", "a dog"]),
    "one wrong word": ("cat", ["dog"]),
    "a very long caption": ("a b c d e " * 200, ["a b c d e f", "b c"]),
    "a repeated word": ("the the the the", ["the cat the", "the the dog"]),
    "a tie in closeness": ("a b c d", ["a b c", "a b c d e"]),
    "a tie in closeness, the longer first": ("a b c d", ["a b c d e", "a b c"]),
}


def reference_bleu(candidates: list[str], references: list[list[str]]) -> tuple[float, ...]:
    scorer = pytest.importorskip("pycocoevalcap.bleu.bleu_scorer").BleuScorer(n=4)
    for candidate, its_references in zip(candidates, references, strict=True):
        scorer += (candidate, its_references)
    return tuple(scorer.compute_score(option="closest", verbose=0)[0])


def our_bleu(candidates: list[str], references: list[list[str]]) -> tuple[float, ...]:
    return corpus_bleu(split(*candidates), [split(*several) for several in references])


@pytest.mark.parametrize(("candidate", "references"), ODD.values(), ids=ODD)
def test_odd_captions_score_as_in_the_coco_evaluation(
    candidate: str, references: list[str]
) -> None:
    expected = reference_bleu([candidate], [references])
    assert our_bleu([candidate], [references]) == pytest.approx(expected, rel=1e-12, abs=0)


@pytest.mark.parametrize("seed", range(20))
def test_random_corpora_score_as_in_the_coco_evaluation(seed: int) -> None:
    randomly = random.Random(seed)

    def caption() -> str:
        return " ".join(randomly.choices("abcde", k=randomly.randint(0, 12)))

    candidates = [caption() for _ in range(30)]
    references = [[caption() for _ in range(randomly.randint(1, 6))] for _ in candidates]
    expected = reference_bleu(candidates, references)
    assert our_bleu(candidates, references) == pytest.approx(expected, rel=1e-12, abs=0)


def test_every_image_needs_a_reference() -> None:
    with pytest.raises(ValueError, match="'a dog' has no reference"):
        corpus_bleu(split("a dog"), [[]])


def test_captions_and_references_must_be_of_the_same_images() -> None:
    with pytest.raises(ValueError, match="2 captions but references for 1 images"):
        corpus_bleu(split("a", "b"), [split("a")])
