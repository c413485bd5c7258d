"""BLEU as the COCO caption evaluation computes it.

Papineni et al., "BLEU: a Method for Automatic Evaluation of Machine Translation", ACL 2002,
https://aclanthology.org/P02-1040.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from captioning.data.vocabulary import SPECIAL, UNK

# The COCO evaluation adds these to every count that it divides, so that no division is by zero
# and a precision of zero leaves a tiny number.
TINY, SMALL = 1e-15, 1e-9


@dataclass(frozen=True)
class Statistics:
    """What BLEU needs to know of one caption; sums over captions give what it needs of a corpus.

    Attributes:
        matches: for n = 1, 2, ..., the n-grams that the references have too, each counted at most
            as often as in the one reference that has it most (clipped counts).
        ngrams: for n = 1, 2, ..., all n-grams.
        length: words.
        reference_length: words of the reference that is closest in length, the shorter of two.
    """

    matches: tuple[int, ...]
    ngrams: tuple[int, ...]
    length: int
    reference_length: int

    def __add__(self, other: "Statistics") -> "Statistics":
        return Statistics(
            tuple(map(sum, zip(self.matches, other.matches, strict=True))),
            tuple(map(sum, zip(self.ngrams, other.ngrams, strict=True))),
            self.length + other.length,
            self.reference_length + other.reference_length,
        )


def statistics(
    candidate: Sequence[str], references: Sequence[Sequence[str]], max_n: int = 4
) -> Statistics:
    """The statistics of one caption against its references, for n-grams of 1 to `max_n` words.

    The unknown word `<unk>` counts as a word and matches nothing, not even itself.

    Raises:
        ValueError: there is no reference.
    """
    if not references:
        raise ValueError(f"the caption {' '.join(candidate)!r} has no reference to score it by")
    allowed: Counter[tuple[str, ...]] = Counter()
    for reference in references:
        allowed |= _ngrams(reference, max_n)
    matches = [0] * max_n
    for ngram, count in _ngrams(candidate, max_n).items():
        if SPECIAL[UNK] not in ngram:
            matches[len(ngram) - 1] += min(count, allowed[ngram])
    length = len(candidate)
    return Statistics(
        matches=tuple(matches),
        ngrams=tuple(max(0, length - n) for n in range(max_n)),
        length=length,
        reference_length=min(map(len, references), key=lambda r: (abs(r - length), r)),
    )


def _ngrams(words: Sequence[str], max_n: int) -> Counter[tuple[str, ...]]:
    return Counter(
        tuple(words[start : start + n])
        for n in range(1, max_n + 1)
        for start in range(len(words) - n + 1)
    )


def bleu(total: Statistics) -> tuple[float, ...]:
    """BLEU-1, BLEU-2, ... in [0, 1] of one caption or, from summed statistics, of a corpus.

    BLEU-n is the geometric mean of the precisions of 1-grams to n-grams, times
    exp(1 - reference length / length) where the captions are shorter than the references
    (Papineni et al. 2002, section 2.3).
    """
    ratio = (total.length + TINY) / (total.reference_length + SMALL)
    brevity = math.exp(1 - 1 / ratio) if ratio < 1 else 1.0
    scores = []
    product = 1.0
    for n, (matches, ngrams) in enumerate(zip(total.matches, total.ngrams, strict=True), start=1):
        product *= (matches + TINY) / (ngrams + SMALL)
        scores.append(brevity * product ** (1 / n))
    return tuple(scores)


def corpus_bleu(
    candidates: Sequence[Sequence[str]],
    references: Sequence[Sequence[Sequence[str]]],
    max_n: int = 4,
) -> tuple[float, ...]:
    """BLEU-1 to BLEU-`max_n` of a corpus, as the COCO caption evaluation computes them.

    Counts are summed over all captions before any precision is taken. The one deviation is that
    `<unk>` matches nothing.

    Args:
        candidates: the words of one caption per image.
        references: for each image the words of its references.
        max_n: words of the longest n-grams.

    Raises:
        ValueError: the two differ in length, or an image has no reference.
    """
    if len(candidates) != len(references):
        raise ValueError(
            f"{len(candidates)} captions but references for {len(references)} images; "
            "pass one caption per image"
        )
    total = Statistics((0,) * max_n, (0,) * max_n, 0, 0)
    for candidate, its_references in zip(candidates, references, strict=True):
        total += statistics(candidate, its_references, max_n)
    return bleu(total)
