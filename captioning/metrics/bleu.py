"""BLEU as the COCO caption evaluation computes it.

Papineni et al., "BLEU: a Method for Automatic Evaluation of Machine Translation", ACL 2002,
https://aclanthology.org/P02-1040.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from captioning.metrics.ngrams import MAX_N, corpus_of
from captioning.metrics.scores import Scores, Words

TINY, SMALL = 1e-15, 1e-9
"""Added to numerators and denominators to avoid division by zero, as in the COCO evaluation."""


def bleu_scores(candidates: Sequence[Words], references: Sequence[Sequence[Words]]) -> Scores:
    """Compute BLEU-1 to BLEU-4 of a corpus and of its images.

    Counts are summed over all captions before precisions are computed. An image's score is that of
    a corpus of this image alone. Unlike in the COCO evaluation, `<unk>` matches nothing.
    """
    corpus, count = corpus_of(candidates, references), len(candidates)
    matches = []
    for counts in corpus.ngrams.counts:
        shared = counts[:count][corpus.images].minimum(counts[count:]).tocoo()
        # The count of an n-gram is clipped to that in the reference that has it most often.
        keys = corpus.images[shared.row] * counts.shape[1] + shared.col
        unique_keys, key_indices = np.unique(keys, return_inverse=True)
        clipped_counts = np.zeros(len(unique_keys))
        np.maximum.at(clipped_counts, key_indices, shared.data)
        images = unique_keys // max(counts.shape[1], 1)
        matches.append(np.bincount(images, clipped_counts, count))
    lengths, reference_lengths = corpus.lengths, corpus.reference_lengths
    # The length of the closest reference; of two equally close ones, of the shorter.
    radix = reference_lengths.max() + 1
    ranks = np.abs(reference_lengths - lengths[corpus.images]) * radix + reference_lengths
    starts = np.searchsorted(corpus.images, np.arange(count))
    closest = np.minimum.reduceat(ranks, starts) % radix
    ngrams = np.maximum(0, lengths[:, None] - np.arange(MAX_N))
    statistics = np.column_stack([*matches, ngrams, lengths, closest]).astype(np.float64)
    return Scores.of_counts(statistics, bleu)


def bleu(statistics: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    """Compute BLEU-1 to BLEU-4 in [0, 1] of C captions or corpora from counts; each (C,).

    BLEU-n is the geometric mean of the precisions of 1-grams to n-grams, times the brevity penalty
    (Papineni et al. 2002, section 2.3).

    Args:
        statistics: (C, 10), clipped counts of matching n-grams, n = 1 to 4; numbers of n-grams;
            the number of words; that of the reference closest in length.
    """
    matches, ngrams = statistics[:, :MAX_N], statistics[:, MAX_N : 2 * MAX_N]
    lengths, closest = statistics[:, -2], statistics[:, -1]
    ratio = (lengths + TINY) / (closest + SMALL)
    brevity = np.exp(np.minimum(0, 1 - 1 / ratio))
    products = np.cumprod((matches + TINY) / (ngrams + SMALL), axis=-1)
    means = products ** (1 / np.arange(1, MAX_N + 1))
    return {f"BLEU-{n + 1}": brevity * means[:, n] for n in range(MAX_N)}
