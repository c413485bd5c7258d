"""BLEU as the COCO caption evaluation computes it.

Papineni et al., "BLEU: a Method for Automatic Evaluation of Machine Translation", ACL 2002,
https://aclanthology.org/P02-1040.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from captioning.metrics.ngrams import MAX_N, Corpus, Counts, sums
from captioning.metrics.scores import Scores, Words

TINY, SMALL = 1e-15, 1e-9
"""The COCO evaluation adds these to numerators and denominators to avoid divisions by zero."""

NAMES = tuple(f"BLEU-{n}" for n in range(1, MAX_N + 1))


@dataclass(frozen=True)
class Statistics:
    """The counts from which BLEU is computed, for C captions; those of a corpus are their sums.

    Attributes:
        matches: (C, 4), clipped counts of matching n-grams, n = 1 to 4: each n-gram counts at most
            as often as in the reference that has it most often.
        ngrams: (C, 4), the number of n-grams.
        lengths: (C,), the number of words.
        reference_lengths: (C,), the number of words of the reference that is closest in length;
            of two equally close ones, the shorter.
    """

    matches: NDArray[np.float64]
    ngrams: NDArray[np.float64]
    lengths: NDArray[np.float64]
    reference_lengths: NDArray[np.float64]

    @classmethod
    def of(cls, corpus: Corpus) -> "Statistics":
        """The statistics of each image's caption."""
        lengths, written = corpus.lengths
        matches = [_matches(*counts, corpus) for counts in corpus.counts()]
        return cls(
            matches=np.stack(matches, axis=-1),
            ngrams=np.maximum(0.0, lengths[:, None] - np.arange(MAX_N)),
            lengths=lengths.astype(np.float64),
            reference_lengths=_closest(lengths, written, corpus.images),
        )

    def weighted(self, counts: NDArray[np.float64]) -> "Statistics":
        """The sums of R corpora, each with the captions `counts` times, (R, C)."""
        return Statistics(
            counts @ self.matches,
            counts @ self.ngrams,
            counts @ self.lengths,
            counts @ self.reference_lengths,
        )

    def bleu(self) -> dict[str, NDArray[np.float64]]:
        """BLEU-1 to BLEU-4 in [0, 1], each (C,).

        BLEU-n is the geometric mean of the precisions of 1-grams to n-grams, times the brevity
        penalty (Papineni et al. 2002, section 2.3).
        """
        ratio = (self.lengths + TINY) / (self.reference_lengths + SMALL)
        brevity = np.exp(np.minimum(0, 1 - 1 / ratio))
        products = np.cumprod((self.matches + TINY) / (self.ngrams + SMALL), axis=-1)
        means = products ** (1 / np.arange(1, MAX_N + 1))
        return {name: brevity * means[:, n] for n, name in enumerate(NAMES)}


@dataclass(frozen=True)
class BLEUScores(Scores):
    """BLEU, whose corpus score is not the mean over images.

    Attributes:
        statistics: the statistics of each image's caption.
    """

    statistics: Statistics

    def resampled(self, counts: NDArray[np.integer]) -> dict[str, NDArray[np.float64]]:
        """BLEU of bootstrap resamples, from their summed statistics; see `Scores.resampled`."""
        return self.statistics.weighted(counts.astype(np.float64)).bleu()


def bleu_scores(candidates: Sequence[Words], references: Sequence[Sequence[Words]]) -> BLEUScores:
    """BLEU-1 to BLEU-4 of a corpus and of its images.

    Counts are summed over all captions before precisions are computed. An image's score is that of
    a corpus of this image alone. Unlike in the COCO evaluation, `<unk>` matches nothing.

    Args:
        candidates: the words of one caption per image.
        references: for each image the words of its references.

    Raises:
        ValueError: there are no captions, the lengths differ, or an image has no reference.
    """
    statistics = Statistics.of(Corpus.of(candidates, references))
    corpus = statistics.weighted(np.ones((1, len(candidates)))).bleu()
    return BLEUScores(
        {name: float(score) for name, [score] in corpus.items()}, statistics.bleu(), statistics
    )


def _matches(found: Counts, written: Counts, corpus: Corpus) -> NDArray[np.float64]:
    """The clipped counts of each image's caption, (images,)."""
    ngrams = len(found.codes)
    pairs = corpus.images[written.captions] * ngrams + written.ngrams
    order = np.argsort(pairs, kind="stable")
    allowed, first = np.unique(pairs[order], return_index=True)
    most = np.maximum.reduceat(written.counts[order], first)
    wanted = found.captions * ngrams + found.ngrams
    _, of_found, of_written = np.intersect1d(
        wanted, allowed, assume_unique=True, return_indices=True
    )
    clipped = np.minimum(found.counts[of_found], most[of_written])
    return sums(clipped, found.captions[of_found], corpus.count)


def _closest(
    lengths: NDArray[np.int64], written: NDArray[np.int64], images: NDArray[np.int64]
) -> NDArray[np.float64]:
    """The number of words of the reference closest in length to each caption, (images,)."""
    longest = written.max() + 1
    ranks = np.abs(written - lengths[images]) * longest + written
    first = np.searchsorted(images, np.arange(len(lengths)))
    return (np.minimum.reduceat(ranks, first) % longest).astype(np.float64)
