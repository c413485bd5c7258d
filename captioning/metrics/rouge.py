"""ROUGE-L as the COCO caption evaluation computes it.

Lin, "ROUGE: A Package for Automatic Evaluation of Summaries", 2004,
https://aclanthology.org/W04-1013.
"""

from collections.abc import Hashable, Sequence

import numpy as np

from captioning.data.vocabulary import SPECIAL, UNK
from captioning.metrics.scores import Scores, Words

RECALL_WEIGHT = 1.2
"""Weight of recall relative to precision; beta in section 3.1."""

EMPTY_CAPTION = ("",)
"""A caption without words counts as one empty word, as in the COCO evaluation."""


def rouge_scores(candidates: Sequence[Words], references: Sequence[Sequence[Words]]) -> Scores:
    """Compute ROUGE-L in [0, 1] of a corpus and of its images.

    The score of an image is the weighted harmonic mean of precision and recall (Lin 2004, section
    3.1): the longest common subsequence with a reference over the words of the caption, and over
    those of the reference. Each is the maximum over references, which may be different ones. The
    corpus score is the mean over images. Unlike in the COCO evaluation, `<unk>` matches nothing.

    Each row of the dynamic programming table is one integer; bit i is 0 where the length increases
    with word i (Hyyrö, "Bit-Parallel LCS-length Computation Revisited", 2004).
    """
    scores = np.zeros(len(candidates))
    for image, (candidate, image_references) in enumerate(zip(candidates, references, strict=True)):
        words, precision, recall = candidate or EMPTY_CAPTION, 0.0, 0.0
        positions: dict[Hashable, int] = {}  # of each word, as bits
        for index, word in enumerate(words):
            positions[word] = positions.get(word, 0) | 1 << index
        positions.pop(SPECIAL[UNK], None)
        all_bits = (1 << len(words)) - 1
        for reference in image_references:
            reference_words = reference or EMPTY_CAPTION
            row = all_bits
            for word in reference_words:
                matches = row & positions.get(word, 0)
                row = (row + matches | row - matches) & all_bits
            common = len(words) - row.bit_count()
            precision = max(precision, common / len(words))
            recall = max(recall, common / len(reference_words))
        if precision > 0:
            scores[image] = (
                (1 + RECALL_WEIGHT**2)
                * precision
                * recall
                / (recall + RECALL_WEIGHT**2 * precision)
            )
    return Scores.of("ROUGE-L", scores)
