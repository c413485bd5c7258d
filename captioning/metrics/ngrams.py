"""Counts the n-grams of many captions at once, as sparse matrices.

Words are numbered in the order of their first occurrence. The code of an n-gram is (number of the
n-gram without its last word) * (number of words) + (number of its last word); its number is the
rank of its code among all codes of its length. Without hashing, different n-grams never share a
number.

Shapes: B images, C captions, R references, G n-grams of one length.
"""

from collections import defaultdict
from collections.abc import Hashable, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from captioning.data.vocabulary import SPECIAL, UNK
from captioning.metrics.scores import Words

MAX_N = 4
"""Maximum n of the COCO evaluation's n-grams."""

_UNKNOWN = object()
"""Replaces `<unk>` in candidates, so that it differs from `<unk>` in references."""


class Counts(NamedTuple):
    """The n-grams of captions.

    Attributes:
        numbers: the number of each word.
        codes: for n = 1, 2, ..., `MAX_N`, the ascending codes of the n-grams, (G,).
        counts: for the same n, how often each caption has each n-gram, (C, G).
    """

    numbers: dict[Hashable, int]
    codes: list[NDArray[np.int64]]
    counts: list[Any]


def ngram_counts(captions: Sequence[Words]) -> Counts:
    """Count the n-grams of captions."""
    numbers: defaultdict[Hashable, int] = defaultdict()
    numbers.default_factory = numbers.__len__
    lengths = np.fromiter(map(len, captions), np.int64, len(captions))
    numbered = map(numbers.__getitem__, chain.from_iterable(captions))
    words = np.fromiter(numbered, np.int64, lengths.sum())
    owners = np.repeat(np.arange(len(lengths)), lengths)
    remaining = np.repeat(np.cumsum(lengths), lengths) - np.arange(len(words))
    starts, ngrams = np.arange(len(words)), words
    ngram_codes: list[NDArray[np.int64]] = [np.arange(len(numbers))]
    counts: list[Any] = []
    for n in range(1, MAX_N + 1):
        if n > 1:
            has_n_words = remaining[starts] >= n
            starts = starts[has_n_words]
            position_codes = ngrams[has_n_words] * len(numbers) + words[starts + n - 1]
            codes, ngrams = np.unique(position_codes, return_inverse=True)
            ngram_codes.append(codes)
        # Repeated n-grams of a caption are summed.
        ones, shape = np.ones(len(starts), np.int64), (len(captions), len(ngram_codes[-1]))
        counts.append(csr_array((ones, (owners[starts], ngrams)), shape))
    return Counts(dict(numbers), ngram_codes, counts)


class Corpus(NamedTuple):
    """Candidates and references, in which a candidate's `<unk>` matches nothing.

    Captions are one candidate per image, then the references of the first image, the second, ...

    Attributes:
        ngrams: the n-grams of all captions.
        lengths: number of words of the candidates, (B,).
        reference_lengths: number of words of the references, (R,).
        images: the image of each reference, (R,).
    """

    ngrams: Counts
    lengths: NDArray[np.int64]
    reference_lengths: NDArray[np.int64]
    images: NDArray[np.int64]


def _without_unk(words: Words) -> Words:
    return [_UNKNOWN if word == SPECIAL[UNK] else word for word in words]


def corpus_of(candidates: Sequence[Words], references: Sequence[Sequence[Words]]) -> Corpus:
    """Count the n-grams of candidates, one per image, and of references."""
    captions: list[Words] = list(map(_without_unk, candidates))
    captions += chain.from_iterable(references)
    lengths, count = np.array(list(map(len, captions))), len(candidates)
    images = np.repeat(np.arange(count), list(map(len, references)))
    return Corpus(ngram_counts(captions), lengths[:count], lengths[count:], images)
