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
