"""ROUGE-L as the COCO caption evaluation computes it.

Lin, "ROUGE: A Package for Automatic Evaluation of Summaries", 2004,
https://aclanthology.org/W04-1013.
"""

from collections.abc import Hashable, Sequence

import numpy as np

from captioning.data.vocabulary import SPECIAL, UNK
from captioning.metrics.scores import Scores, Words, check_pairs

BETA = 1.2
"""The weight of recall relative to precision."""

EMPTY = ("",)
"""The COCO evaluation treats a caption without words as one empty word."""


def rouge_scores(candidates: Sequence[Words], references: Sequence[Sequence[Words]]) -> Scores:
    """ROUGE-L in [0, 1] of a corpus and of its images.

    The score of an image is the weighted harmonic mean of precision and recall (Lin 2004, section
    3.1): the longest common subsequence with a reference over the words of the caption, and over
    those of the reference. Each is the maximum over references, which may be different ones. The
    corpus score is the mean over images. Unlike in the COCO evaluation, `<unk>` matches nothing.

    Args:
        candidates: the words of one caption per image.
        references: for each image the words of its references.

    Raises:
        ValueError: there are no captions, the lengths differ, or an image has no reference.
    """
    check_pairs(candidates, references)
    scores = [_score(*pair) for pair in zip(candidates, references, strict=True)]
    return Scores.of("ROUGE-L", np.array(scores))


def _score(candidate: Words, references: Sequence[Words]) -> float:
    candidate = candidate or EMPTY
    positions = _positions(candidate)
    precision = recall = 0.0
    for reference in references:
        common = _common_length(positions, len(candidate), reference or EMPTY)
        precision = max(precision, common / len(candidate))
        recall = max(recall, common / len(reference or EMPTY))
    if precision == 0:
        return 0.0
    return (1 + BETA**2) * precision * recall / (recall + BETA**2 * precision)


def _positions(words: Words) -> dict[Hashable, int]:
    """For each word the positions at which it stands, as the bits of an integer."""
    positions: dict[Hashable, int] = {}
    for index, word in enumerate(words):
        positions[word] = positions.get(word, 0) | 1 << index
    positions.pop(SPECIAL[UNK], None)
    return positions


def _common_length(positions: dict[Hashable, int], length: int, words: Words) -> int:
    """The length of the longest common subsequence.

    Each row of the dynamic programming table is one integer; bit i is 0 where the length increases
    with word i (Hyyrö, "Bit-Parallel LCS-length Computation Revisited", 2004).
    """
    everywhere = (1 << length) - 1
    row = everywhere
    for word in words:
        matches = row & positions.get(word, 0)
        row = (row + matches | row - matches) & everywhere
    return length - row.bit_count()
