from collections.abc import Callable

import numpy as np
import pytest

from captioning.metrics.bleu import bleu_scores
from captioning.metrics.cider import DocumentFrequencies, cider_scores
from captioning.metrics.rouge import rouge_scores
from captioning.metrics.scores import Scores

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
