"""Counts of n-grams of many captions at once, as sorted arrays.

Words are numbered in the order of their first occurrence. The code of an n-gram is (number of the
n-gram without its last word) * (number of words) + (number of its last word); its number is the
rank of its code among all codes of its length. Nothing is hashed, so different n-grams never have
the same number.
"""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from captioning.data.vocabulary import SPECIAL, UNK
from captioning.metrics.scores import Words, check_pairs

MAX_N = 4
"""The largest n of the COCO evaluation's n-grams."""


class WordNumbers(dict[Hashable, int]):
    """The number of each word; a new word gets the next number on lookup."""

    def __missing__(self, word: Hashable) -> int:
        number = self[word] = len(self)
        return number


class Numbered(NamedTuple):
    """Captions as numbers.

    Attributes:
        words: (W,), the words of all captions, concatenated.
        lengths: (C,), the number of words of each caption.
    """

    words: NDArray[np.int64]
    lengths: NDArray[np.int64]


def numbered(captions: Sequence[Words], numbers: WordNumbers) -> Numbered:
    """Captions as numbers; new words are added to `numbers`."""
    lengths = np.fromiter(map(len, captions), np.int64, len(captions))
    words = map(numbers.__getitem__, chain.from_iterable(captions))
    return Numbered(np.fromiter(words, np.int64, lengths.sum()), lengths)


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

    def between(self, first: int, end: int) -> "Counts":
        """The counts of the captions in [first, end), renumbered from 0."""
        which = slice(*np.searchsorted(self.captions, (first, end)))
        return Counts(
            self.captions[which] - first, self.ngrams[which], self.counts[which], self.codes
        )


def ngram_counts(captions: Numbered, vocab_size: int) -> Iterator[Counts]:
    """The counts for n = 1, 2, ..., `MAX_N`.

    Args:
        captions: the captions as numbers.
        vocab_size: the number of words.
    """
    words, lengths = captions
    owners = np.repeat(np.arange(len(lengths)), lengths)
    remaining = np.repeat(np.cumsum(lengths), lengths) - np.arange(len(words))
    starts, ngrams, codes = np.arange(len(words)), words, np.arange(vocab_size)
    for n in range(1, MAX_N + 1):
        if n > 1:
            whole = remaining[starts] >= n
            starts = starts[whole]
            longer = ngrams[whole] * vocab_size + words[starts + n - 1]
            codes, ngrams = np.unique(longer, return_inverse=True)
        pairs, counts = np.unique(owners[starts] * len(codes) + ngrams, return_counts=True)
        yield Counts(*np.divmod(pairs, max(len(codes), 1)), counts, codes)


_UNKNOWN = object()
"""Replaces `<unk>` in candidates, so that it differs from `<unk>` in references."""


@dataclass(frozen=True)
class Corpus:
    """Captions and their references as numbers.

    `<unk>` in a candidate matches nothing.

    Attributes:
        numbers: the number of each word.
        captions: one candidate per image, then the references of the first image, the second, ...
        images: (references,), the image of each reference; ascending.
        count: the number of images.
    """

    numbers: WordNumbers
    captions: Numbered
    images: NDArray[np.int64]
    count: int

    @classmethod
    def of(cls, candidates: Sequence[Words], references: Sequence[Sequence[Words]]) -> "Corpus":
        """The captions and references of images.

        Raises:
            ValueError: see `captioning.metrics.scores.check_pairs`.
        """
        check_pairs(candidates, references)
        numbers = WordNumbers()
        found = numbered(candidates, numbers)
        # The candidates' <unk> keeps its number; the references' <unk> gets another.
        numbers[_UNKNOWN] = numbers.pop(SPECIAL[UNK], len(numbers))
        written = numbered(list(chain.from_iterable(references)), numbers)
        captions = Numbered(*map(np.concatenate, zip(found, written, strict=True)))
        return cls(numbers, captions, image_of_each(references), len(candidates))

    @property
    def lengths(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The lengths of the candidates, (images,), and of the references, (references,)."""
        lengths = self.captions.lengths
        return lengths[: self.count], lengths[self.count :]

    def counts(self) -> Iterator[tuple[Counts, Counts]]:
        """For n = 1, 2, ... the counts of the candidates and of the references."""
        for counts in ngram_counts(self.captions, len(self.numbers)):
            yield (
                counts.between(0, self.count),
                counts.between(self.count, len(self.captions.lengths)),
            )


def sums(values: NDArray[Any], groups: NDArray[np.int64], count: int) -> NDArray[np.float64]:
    """The sum of the values of each group, (count,).

    Args:
        values: (P,).
        groups: (P,), the group of each value, from 0.
        count: the number of groups.
    """
    # NumPy counts instead of summing if there are no values.
    return np.bincount(groups, values, count).astype(np.float64)


def image_of_each(references: Sequence[Sequence[Words]]) -> NDArray[np.int64]:
    """The image of each reference, (references,)."""
    return np.repeat(np.arange(len(references)), list(map(len, references)))
