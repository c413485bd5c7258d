"""Counts of n-grams of many captions at once, as sorted arrays.

Words are numbered in the order of their first occurrence. The code of an n-gram is (number of the
n-gram without its last word) * (number of words) + (number of its last word); its number is the
rank of its code among all codes of its length. Nothing is hashed, so different n-grams never have
the same number.
"""

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from captioning.data.vocabulary import SPECIAL, UNK
from captioning.metrics.scores import Words, check_pairs

MAX_N = 4
"""The largest n of the COCO evaluation's n-grams."""

_UNKNOWN = object()
"""Replaces `<unk>` in candidates, so that it differs from `<unk>` in references."""


class Counts(NamedTuple):
    """The counts of P pairs of a caption and an n-gram that it has, for one n.

    Attributes:
        captions: (P,), the caption; ascending.
        ngrams: (P,), the n-gram's number; ascending within a caption.
        counts: (P,), how often the caption has the n-gram.
        codes: (G,), the codes of all n-grams; ascending.
    """

    captions: NDArray[np.int64]
    ngrams: NDArray[np.int64]
    counts: NDArray[np.int64]
    codes: NDArray[np.int64]


def ngram_counts(captions: Sequence[Words]) -> tuple[dict[Hashable, int], list[Counts]]:
    """The number of each word, and the counts for n = 1, 2, ..., `MAX_N`."""
    numbers: defaultdict[Hashable, int] = defaultdict()
    numbers.default_factory = numbers.__len__
    lengths = np.fromiter(map(len, captions), np.int64, len(captions))
    numbered = map(numbers.__getitem__, chain.from_iterable(captions))
    words = np.fromiter(numbered, np.int64, lengths.sum())
    owners = np.repeat(np.arange(len(lengths)), lengths)
    remaining = np.repeat(np.cumsum(lengths), lengths) - np.arange(len(words))
    starts, ngrams, codes = np.arange(len(words)), words, np.arange(len(numbers))
    found = []
    for n in range(1, MAX_N + 1):
        if n > 1:
            whole = remaining[starts] >= n
            starts = starts[whole]
            longer = ngrams[whole] * len(numbers) + words[starts + n - 1]
            codes, ngrams = np.unique(longer, return_inverse=True)
        pairs, counts = np.unique(owners[starts] * len(codes) + ngrams, return_counts=True)
        found.append(Counts(*np.divmod(pairs, max(len(codes), 1)), counts, codes))
    return dict(numbers), found


@dataclass(frozen=True)
class Corpus:
    """The n-grams of candidates and references, in which a candidate's `<unk>` matches nothing.

    Captions are one candidate per image, then the references of the first image, the second, ...

    Attributes:
        numbers: the number of each word.
        counts: the counts of the captions for n = 1, 2, ...
        lengths: (captions,), in words.
        images: (captions,), the image of each caption.
        size: the number of images.
    """

    numbers: dict[Hashable, int]
    counts: list[Counts]
    lengths: NDArray[np.int64]
    images: NDArray[np.int64]
    size: int

    @classmethod
    def of(cls, candidates: Sequence[Words], references: Sequence[Sequence[Words]]) -> "Corpus":
        """The corpus of these captions, one candidate per image."""
        check_pairs(candidates, references)
        captions: list[Words] = [
            [_UNKNOWN if word == SPECIAL[UNK] else word for word in words] for words in candidates
        ]
        captions += chain.from_iterable(references)
        numbers = np.arange(len(candidates))
        images = np.append(numbers, np.repeat(numbers, list(map(len, references))))
        lengths = np.array(list(map(len, captions)))
        return cls(*ngram_counts(captions), lengths, images, len(numbers))

    def shared(
        self, counts: Counts, values: NDArray[Any]
    ) -> tuple[NDArray[np.int64], NDArray[Any], NDArray[Any]]:
        """The n-grams of references beside those of their images' candidates.

        Args:
            counts: the counts for one n.
            values: (P,), a value of each caption's n-gram.

        Returns:
            For each n-gram of a reference its key, image * (number of n-grams) + n-gram, its value,
            and the value of the same n-gram in the image's candidate, 0 if the candidate lacks it.
        """
        keys = self.images[counts.captions] * len(counts.codes) + counts.ngrams
        written = np.searchsorted(counts.captions, self.size)
        places = np.searchsorted(keys[:written], keys[written:])
        is_shared = np.append(keys[:written], -1)[places] == keys[written:]
        own = np.where(is_shared, np.append(values[:written], 0)[places], 0)
        return keys[written:], values[written:], own
