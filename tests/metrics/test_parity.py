"""The COCO caption evaluation, pycocoevalcap 1.2, gives the same scores."""

import random
import shutil
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from captioning.data.readers import Coco
from captioning.data.tokens import tokenize, tokens
from captioning.metrics.bleu import bleu_scores
from captioning.metrics.cider import cider_scores
from captioning.metrics.registry import score_tokens, scorers
from captioning.metrics.rouge import rouge_scores
from captioning.metrics.scores import generated_tokens
from captioning.shapes import captions, random_scene

Corpus = tuple[list[list[str]], list[list[list[str]]]]
"""The words of one caption per image, and of its references."""


METRICS = (bleu_scores, rouge_scores, cider_scores)


def coco_scores(found: dict[int, list[str]], written: dict[int, list[str]]) -> list[Any]:
    """Scores of the corpus and of its images by the COCO evaluation's BLEU, ROUGE-L and CIDEr.

    Args:
        found: the words of one caption per image, joined by spaces.
        written: those of its references.
    """
    bleu = pytest.importorskip("pycocoevalcap.bleu.bleu").Bleu(4)
    rouge = pytest.importorskip("pycocoevalcap.rouge.rouge").Rouge()
    cider = pytest.importorskip("pycocoevalcap.cider.cider").Cider()
    return [
        bleu.compute_score(written, found, verbose=0),
        rouge.compute_score(written, found),
        cider.compute_score(written, found),
    ]


def assert_coco_agrees(candidates: Any, references: Any) -> None:
    """Compare every score, of the corpus and of every image, to nine digits."""
    found = {image: [" ".join(words)] for image, words in enumerate(candidates)}
    written = {image: list(map(" ".join, several)) for image, several in enumerate(references)}
    for metric, (corpus, images) in zip(METRICS, coco_scores(found, written), strict=True):
        mine = metric(candidates, references)
        np.testing.assert_allclose(list(mine.corpus.values()), np.atleast_1d(corpus), 1e-9, 0)
        np.testing.assert_allclose(list(mine.images.values()), np.atleast_2d(images), 1e-9, 0)


def one_against_the_others(corpus: Sequence[Sequence[str]]) -> Corpus:
    """Of what people wrote of an image, one caption against the others; each gets its turn."""
    words = [[tokenize(caption) for caption in several] for several in corpus]
    candidates = [several.pop(image % len(several)) for image, several in enumerate(words)]
    return candidates, words


def flickr8k(folder: Path) -> list[list[str]]:
    """The captions of Flickr8k's photos."""
    lines = (folder / "flickr8k/Flickr8k.token.txt").read_text(encoding="utf-8").splitlines()
    found: dict[str, list[str]] = defaultdict(list)
    for line in lines:
        name, caption = line.split("\t")
        found[name.split("#")[0]].append(caption)
    return list(found.values())


def test_captions_of_scenes_score_as_in_the_coco_evaluation() -> None:
    rng = np.random.default_rng(0)
    assert_coco_agrees(
        *one_against_the_others([list(captions(random_scene(rng), rng)) for _ in range(80)])
    )


def coco(folder: Path) -> list[list[str]]:
    """The captions of some photos of COCO."""
    reader = Coco(folder / "coco-mini")
    return [
        list(record.captions)
        for split in ("train", "val")
        for record in reader.read().records(split)
    ]


@pytest.mark.parametrize("captions_of", [lambda folder: flickr8k(folder)[::24], coco])
def test_captions_of_photos_score_as_in_the_coco_evaluation(
    captions_of: Callable[[Path], list[list[str]]], shared_data: Path
) -> None:
    assert_coco_agrees(*one_against_the_others(captions_of(shared_data)))


ODD = [
    [],
    ["dog"],
    ["a"] * 300,
    [letter for letter in "abcde" for _ in range(40)],
    ["größe", "naïve", "日本語", "ß"],
    ["🐈", "👩‍👩‍👧", "🐈"],
    ["&", "/", "*", "#"],
    ["a", "dog", "a", "dog", "a", "dog"],
]


def test_odd_captions_score_as_in_the_coco_evaluation() -> None:
    pairs = [(caption, [other]) for caption in ODD for other in ODD]
    pairs += [(caption, [ODD[0], *ODD[:image], caption]) for image, caption in enumerate(ODD)]
    assert_coco_agrees(*map(list, zip(*pairs, strict=True)))


@pytest.mark.parametrize("seed", range(4))
def test_random_captions_score_as_in_the_coco_evaluation(seed: int) -> None:
    randomly = random.Random(seed)
    words = "abcde" if seed % 2 else ["a", *map(str, range(300))]

    def caption() -> list[str]:
        return randomly.choices(words, k=randomly.choice([0, 1, 3, 8, 12, 70]))

    candidates = [caption() for _ in range(30)]
    references = [[caption() for _ in range(randomly.randint(1, 6))] for _ in candidates]
    assert_coco_agrees(candidates, references)


RAW = [
    "",
    "dog",
    "A dog. A cat... and a bird!",
    "?!",
    "The  man's “big” dog isn't here – it's at 5:30 p.m.",  # noqa: RUF001
    "Größe: naïve 日本語 🐈",
    "a dog " * 200,
]


NUMBERS = ["A clock at 22 3/4 here", "22 3/4 of clocks", "a clock of 22, 3/4 here", "the clock"]
"""The tokenizer writes a no-break space, at which ROUGE-L alone does not split."""


@pytest.mark.integration
def test_raw_captions_score_as_with_the_coco_tokenizer(
    shared_data: Path,
) -> None:
    if not shutil.which("java"):
        pytest.skip("the COCO evaluation's tokenizer needs Java")
    tokenizer = pytest.importorskip("pycocoevalcap.tokenizer.ptbtokenizer").PTBTokenizer()
    people = flickr8k(shared_data)[::10]
    candidates = [several[0] for several in people] + RAW + NUMBERS[:1]
    references = [several[1:] for several in people] + [people[0]] * len(RAW) + [NUMBERS[1:]]
    # Captions and references in one start of Java, the captions first.
    texts = {
        image: [{"caption": text} for text in (candidate, *several)]
        for image, (candidate, several) in enumerate(zip(candidates, references, strict=True))
    }
    cut = tokenizer.tokenize(texts)
    expected = coco_scores(
        {image: several[:1] for image, several in cut.items()},
        {image: several[1:] for image, several in cut.items()},
    )
    found = list(map(generated_tokens, candidates))
    written = [list(map(tokens, several)) for several in references]
    for metric, (corpus, images) in zip(scorers().values(), expected, strict=True):
        mine = score_tokens(metric, found, written)
        assert list(mine.corpus.values()) == pytest.approx(np.atleast_1d(corpus).tolist(), abs=5e-5)
        of_numbers = [values[-1] for values in mine.images.values()]
        assert of_numbers == pytest.approx(np.atleast_2d(images)[:, -1].tolist(), rel=1e-9)
