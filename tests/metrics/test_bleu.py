import pytest

from captioning.metrics.bleu import bleu_scores


def split(*captions: str) -> list[list[str]]:
    return [caption.split() for caption in captions]


def bleu(candidate: str, *references: str) -> list[float]:
    """BLEU-1 to BLEU-4 of a corpus of one image."""
    return list(bleu_scores(split(candidate), [split(*references)]).corpus.values())


def test_bleu_is_the_geometric_mean_of_the_precisions() -> None:
    # Words: 5 of 6 match; pairs: 3 of 5 (a man, in red); triples: 1 of 4; fours: none.
    scores = bleu("a man rides in red trousers", "a man rides dressed in red")
    expected = [5 / 6, (5 / 6 * 3 / 5) ** (1 / 2), (5 / 6 * 3 / 5 * 1 / 4) ** (1 / 3)]
    assert scores[:3] == pytest.approx(expected, rel=1e-8)
    assert scores[3] < 1e-3


def test_of_two_equally_close_lengths_the_shorter_counts() -> None:
    # Against the longer one, brevity would cost a factor of exp(-1/4).
    score = bleu("one two three four", "one two three four five", "one two three")[0]
    assert score == pytest.approx(1, rel=1e-8)


def test_counts_are_summed_over_the_corpus_then_divided() -> None:
    # 1 of 1 and 0 of 3 make 1 of 4; the mean over captions would be a half.
    scores = bleu_scores(split("dog", "x y z"), [split("dog"), split("a b c")])
    assert scores.corpus["BLEU-1"] == pytest.approx(1 / 4, rel=1e-8)


def test_the_score_of_an_image_is_that_of_a_corpus_of_it_alone() -> None:
    candidates = split("a dog", "the red cat sits")
    references = [split("a dog runs", "a dog"), split("the cat sits here")]
    together = bleu_scores(candidates, references)
    for image, pair in enumerate(zip(candidates, references, strict=True)):
        alone = bleu_scores([pair[0]], [pair[1]]).corpus
        assert {name: scores[image] for name, scores in together.images.items()} == alone


def test_the_unknown_word_counts_as_a_word_and_matches_nothing() -> None:
    known, unknown = bleu("a dog a b", "a cat a b"), bleu("a <unk> a b", "a <unk> a b")
    assert unknown == known
