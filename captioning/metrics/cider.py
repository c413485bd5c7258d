"""CIDEr as the COCO caption evaluation computes it, which is CIDEr-D.

Vedantam et al., "CIDEr: Consensus-based Image Description Evaluation", CVPR 2015,
https://arxiv.org/abs/1411.5726.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from captioning.metrics.frequencies import DocumentFrequencies
from captioning.metrics.ngrams import MAX_N, Corpus, Counts, sums
from captioning.metrics.scores import Scores, Words

__all__ = ["DocumentFrequencies", "cider_scores"]

SIGMA = 6.0
"""Difference in length, in words, that costs a similarity 39 % of its value."""


def cider_scores(
    candidates: Sequence[Words],
    references: Sequence[Sequence[Words]],
    frequencies: DocumentFrequencies | None = None,
) -> Scores:
    """CIDEr-D, from 0 to 10, of a corpus and of its images.

    A caption is a vector with an entry for every n-gram: how often the caption has it, times how
    rare it is among images. The score of a caption is ten times its mean cosine similarity with
    the references over n = 1 to 4, in which an n-gram counts at most as often as in the reference
    (clipping) and which falls with the difference in length (Vedantam et al. 2015, section 8). The
    score of the corpus is the mean over images. The one deviation from the COCO evaluation is that
    `<unk>` matches nothing.

    Args:
        candidates: the words of one caption per image.
        references: for each image the words of its references.
        frequencies: in how many images n-grams occur; those of the references themselves if none,
            as in the COCO evaluation.

    Raises:
        ValueError: there are no captions, the two differ in length, or an image has no reference.
    """
    corpus = Corpus.of(candidates, references)
    frequencies = frequencies or DocumentFrequencies.of(references)
    similarities = np.zeros(len(corpus.images))
    counts = list(corpus.counts())
    rarities = frequencies.rarities(corpus.numbers, [found.codes for found, _ in counts])
    for (found, written), rarity in zip(counts, rarities, strict=True):
        similarities += _similarities(found, written, rarity, corpus)
    # The COCO evaluation takes the number of pairs of words for the length of a caption.
    lengths, of_references = (np.maximum(0, lengths - 1) for lengths in corpus.lengths)
    differences = lengths[corpus.images] - of_references
    penalty = np.exp(-(differences**2) / (2 * SIGMA**2))
    summed = sums(similarities * penalty, corpus.images, corpus.count)
    return Scores.of("CIDEr", 10 / MAX_N * summed / np.bincount(corpus.images))


def _similarities(
    found: Counts, written: Counts, rarity: NDArray[np.float64], corpus: Corpus
) -> NDArray[np.float64]:
    """The clipped cosine similarity of every reference with its image's caption, (references,)."""
    of_found, of_written = (side.counts * rarity[side.ngrams] for side in (found, written))
    # What the caption has of every n-gram of its references; nothing of most.
    pairs = np.append(found.captions * len(rarity) + found.ngrams, -1)
    wanted = corpus.images[written.captions] * len(rarity) + written.ngrams
    places = np.searchsorted(pairs[:-1], wanted)
    had = np.where(pairs[places] == wanted, np.append(of_found, 0.0)[places], 0.0)
    count = len(corpus.images)
    products = sums(np.minimum(had, of_written) * of_written, written.captions, count)
    norms = np.sqrt(sums(of_found**2, found.captions, corpus.count))[corpus.images]
    norms *= np.sqrt(sums(of_written**2, written.captions, count))
    return np.divide(products, norms, out=np.zeros_like(products), where=norms > 0)
