import math
import random
from pathlib import Path

import numpy as np
import pytest

from captioning.errors import InputError
from captioning.metrics.bleu import bleu_scores
from captioning.metrics.cider import DocumentFrequencies, cider_scores, rewards


def split(*captions: str) -> list[list[str]]:
    return [caption.split() for caption in captions]


OTHER = split("x y z w")
"""References of a second image, so that what the first has is rare."""


def cider(candidate: str, *references: str) -> float:
    """The score of the first of two images, of which each n-gram occurs in one."""
    scores = cider_scores(split(candidate, "x"), [split(*references), OTHER])
    return float(scores.images["CIDEr"][0])


def test_a_caption_that_is_its_reference_scores_ten() -> None:
    assert cider("a dog runs fast", "a dog runs fast") == pytest.approx(10)


def test_a_repeated_word_is_no_more_alike_than_the_reference() -> None:
    # Vectors (2, 0) and (1, 1), clipped to a product of 1; pairs of words do not match.
    assert cider("a a", "a b") == pytest.approx(10 / 4 / (2 * math.sqrt(2)))


def test_a_difference_in_length_is_penalised_by_a_gaussian() -> None:
    # Three words and two pairs more: cosines 1/sqrt(4) of words and 0 of pairs, three pairs longer.
    penalty = math.exp(-(3**2) / (2 * 6**2))
    assert cider("a", "a b c d") == pytest.approx(10 / 4 * penalty / 2)


def test_what_all_images_have_counts_for_nothing() -> None:
    scores = cider_scores(split("a dog", "a cat"), [split("a dog"), split("a cat")])
    alone = cider_scores(split("dog", "a"), [split("a dog"), split("a cat")])
    assert alone.images["CIDEr"][1] == 0
    assert scores.images["CIDEr"] == pytest.approx([5, 5])  # of words and of pairs, 1 of 1


def test_the_unknown_word_counts_as_a_word_and_matches_nothing() -> None:
    unknown = cider("a <unk> runs fast", "a <unk> runs fast")
    assert unknown == pytest.approx(cider("a never runs fast", "a <unk> runs fast"), rel=1e-12)
    assert unknown < 10


def test_a_saved_corpus_says_how_rare_n_grams_are() -> None:
    # Of eight images "a" occurs in all, "dog" in four, "cat" in one or none: log 1, log 2, log 8.
    saved = DocumentFrequencies.of([split("a dog")] * 4 + [split("a")] * 4)
    scores = cider_scores(split("a dog"), [split("a cat dog")], saved)
    cosine = math.log(2) / math.hypot(math.log(8), math.log(2))  # of words; no pair matches
    penalty = math.exp(-1 / 72)  # one pair longer
    assert scores.corpus["CIDEr"] == pytest.approx(10 / 4 * cosine * penalty)


def test_its_own_references_as_a_corpus_change_nothing(tmp_path: Path) -> None:
    candidates = split("a dog runs", "", "the red cat sits", "a a a")
    references = [split("a dog", "dog runs fast"), split("a"), split("the cat"), split("", "a b")]
    DocumentFrequencies.of(references).save(tmp_path / "corpus.npz")
    saved = DocumentFrequencies.load(tmp_path / "corpus.npz")
    found, expected = (cider_scores(candidates, references, one) for one in (saved, None))
    assert found.images["CIDEr"].tolist() == expected.images["CIDEr"].tolist()
    assert expected.corpus["CIDEr"] > 0


@pytest.mark.parametrize("content", [None, b'{"images": 3}', b"half", b"array"])
def test_a_foreign_or_damaged_file_is_named(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "corpus.npz"
    if content == b"half":
        DocumentFrequencies.of([split("a dog runs on the beach")] * 3).save(path)
        content = path.read_bytes()
        content = content[: len(content) // 2] + bytes(len(content) // 2)
    elif content == b"array":
        with path.open("wb") as file:
            np.savez(file, words=np.arange(3))
        content = path.read_bytes()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=r"corpus\.npz: "):
        DocumentFrequencies.load(path)


END = 2


def ids(randomly: random.Random) -> list[int]:
    return [*randomly.choices(range(4, 12), k=randomly.randint(0, 9)), END]


def test_the_reward_of_a_sample_is_its_caption_s_score() -> None:
    randomly = random.Random(0)
    references = [[ids(randomly) for _ in range(3)] for _ in range(6)]
    samples = [[ids(randomly) for _ in range(4)] for _ in range(2)]
    frequencies = DocumentFrequencies.of(references)
    found = rewards(samples, references[:2], frequencies, bleu=0.5)
    assert found.shape == (2, 4)
    for n in range(4):
        candidates = [several[n] for several in samples]
        cider = cider_scores(candidates, references[:2], frequencies).images["CIDEr"]
        bleu = bleu_scores(candidates, references[:2]).images["BLEU-4"]
        np.testing.assert_allclose(found[:, n], cider + 0.5 * bleu, rtol=1e-14, atol=0)


def test_a_sample_that_ends_as_people_do_is_rewarded_for_it() -> None:
    references = [[[5, 6, END]], [[7, 8, 9, END]]]
    frequencies = DocumentFrequencies.of(references)
    [[ended, endless]] = rewards([[[5, 6, END], [5, 6]]], references[:1], frequencies)
    assert ended > endless
