"""ROUGE-L as the COCO caption evaluation computes it.

Lin, "ROUGE: A Package for Automatic Evaluation of Summaries", 2004,
https://aclanthology.org/W04-1013.
"""

from collections.abc import Hashable, Sequence

import numpy as np

from captioning.data.vocabulary import SPECIAL, UNK
from captioning.metrics.scores import Scores, Words, check_pairs

BETA = 1.2
"""How much more recall weighs than precision."""

EMPTY = ("",)
"""What the COCO evaluation takes a caption without words for: one word, which is empty."""


def rouge_scores(candidates: Sequence[Words], references: Sequence[Sequence[Words]]) -> Scores:
    """ROUGE-L in [0, 1] of a corpus and of its images.

    Precision and recall are the longest common subsequence with a reference over the words of the
    caption and of the reference. Of each the best over the references counts, and the two need not
    be of the same reference; their weighted harmonic mean is the image's score (Lin 2004, section
    3.1), and the mean over images the corpus's. The one deviation from the COCO evaluation is that
    `<unk>` matches nothing.

    Args:
        candidates: the words of one caption per image.
        references: for each image the words of its references.

    Raises:
        ValueError: there are no captions, the two differ in length, or an image has no reference.
    """
    check_pairs(candidates, references)
    scores = [_score(*pair) for pair in zip(candidates, references, strict=True)]
    return Scores.of("ROUGE-L", np.array(scores))


def _score(candidate: Words, references: Sequence[Words]) -> float:
    candidate = candidate or EMPTY
    places = _places(candidate)
    precision = recall = 0.0
    for reference in references:
        common = _common(places, len(candidate), reference or EMPTY)
        precision = max(precision, common / len(candidate))
        recall = max(recall, common / len(reference or EMPTY))
    if precision == 0:
        return 0.0
    return (1 + BETA**2) * precision * recall / (recall + BETA**2 * precision)


def _places(words: Words) -> dict[Hashable, int]:
    """For every word a number whose bit i says whether word i is that one."""
    places: dict[Hashable, int] = {}
    for index, word in enumerate(words):
        places[word] = places.get(word, 0) | 1 << index
    places.pop(SPECIAL[UNK], None)
    return places


def _common(places: dict[Hashable, int], length: int, words: Words) -> int:
    """The length of the longest common subsequence, a row of its table at a time.

    The row is one number, in which bit i is zero where the subsequence gets longer with word i
    (Hyyrö, "Bit-Parallel LCS-length Computation Revisited", 2004).
    """
    everywhere = (1 << length) - 1
    row = everywhere
    for word in words:
        matches = row & places.get(word, 0)
        row = (row + matches | row - matches) & everywhere
    return length - row.bit_count()
