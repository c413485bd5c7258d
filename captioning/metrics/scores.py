"""Scores of captions, statistics of their words, and bootstrap confidence intervals.

Efron and Tibshirani, "An Introduction to the Bootstrap", 1993, section 13.3.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from captioning.data.tokenizer_names import TokenizerName
from captioning.data.tokenizers import tokenizer_of_scores
from captioning.data.tokens import words_of
from captioning.data.vocabulary import SPECIAL, UNK

Words: TypeAlias = Sequence[Hashable]
"""A caption as its words, or their ids."""

RESAMPLES = 1000
LEVEL = 0.95
MAX_COUNTS = 4_000_000
"""Maximum number of counts in memory at a time: 32 MB."""

INTEGER_STATISTICS = ("images", "distinct captions", "distinct words", "shortest", "longest")
"""The statistics of `diversity` that are whole numbers."""


Formula: TypeAlias = Callable[[NDArray[np.float64]], dict[str, NDArray[np.float64]]]
"""Maps counts, (rows, S), to scores by name, (rows,)."""


@dataclass(frozen=True)
class Scores:
    """The scores of one caption per image, by one metric or several.

    Attributes:
        corpus: scores of all images together by name, such as "BLEU-1" to "BLEU-4" or "CIDEr".
        images: for the same names, the scores of each image, in the order of the captions.
        summed: for corpus scores that are not means over images: counts of each caption,
            (images, S), and a formula of their sums over the corpus, as for BLEU.
    """

    corpus: dict[str, float]
    images: dict[str, NDArray[np.float64]]
    summed: Sequence[tuple[NDArray[np.float64], Formula]] = ()

    @classmethod
    def of(cls, name: str, images: NDArray[np.float64]) -> "Scores":
        """The scores of a metric whose corpus score is the mean over images."""
        return cls({name: float(images.mean())}, {name: images})

    @classmethod
    def of_counts(cls, counts: NDArray[np.float64], formula: Formula) -> "Scores":
        """The scores by a formula of counts, (images, S), or of their sums over the corpus."""
        corpus = formula(counts.sum(axis=0, keepdims=True))
        means = {name: float(score) for name, [score] in corpus.items()}
        return cls(means, formula(counts), [(counts, formula)])

    @classmethod
    def joined(cls, metric_scores: Sequence["Scores"]) -> "Scores":
        """Join the scores of the same captions by several metrics."""
        corpus: dict[str, float] = {}
        images: dict[str, NDArray[np.float64]] = {}
        summed: list[tuple[NDArray[np.float64], Formula]] = []
        for scores in metric_scores:
            corpus |= scores.corpus
            images |= scores.images
            summed += scores.summed
        return cls(corpus, images, summed)

    def resampled(self, counts: NDArray[np.integer]) -> dict[str, NDArray[np.float64]]:
        """Compute the corpus scores of R bootstrap resamples by name, (R,).

        CIDEr keeps the document frequencies of all images.

        Args:
            counts: how often each resample contains each image, (R, images).
        """
        weights = counts / counts.sum(axis=1, keepdims=True)
        corpus_scores = {name: weights @ scores for name, scores in self.images.items()}
        for statistics, formula in self.summed:
            corpus_scores |= formula(counts @ statistics)
        return corpus_scores


Scorer: TypeAlias = Callable[[Sequence[Sequence[str]], Sequence[Sequence[Sequence[str]]]], Scores]
"""Scores the words of one caption per image against the words of its references."""

PhotoScorer: TypeAlias = Callable[
    [Sequence[str], Sequence[Sequence[str]], Sequence[Hashable]], Scores
]
"""Scores untokenized captions against references and photos, given by image ids."""


def generated_tokens(caption: str, name: TokenizerName = "ptb") -> list[str]:
    """Split a generated caption into tokens for scores, in which `<unk>` is one token.

    Args:
        caption: as the model gives it.
        name: the tokenizer of the vocabulary.
    """
    parts = map(tokenizer_of_scores(name), caption.split(SPECIAL[UNK]))
    tokens = next(parts)
    for part in parts:
        tokens = [*tokens, SPECIAL[UNK], *part]
    return tokens


def generated_words(caption: str, name: TokenizerName = "ptb") -> list[str]:
    """Split a generated caption into words for scores, in which `<unk>` is one word."""
    return words_of(generated_tokens(caption, name))


def diversity(
    candidates: Sequence[Words],
    *,
    training: Iterable[str] | None = None,
    vocabulary: Collection[str] | None = None,
    name: TokenizerName = "ptb",
) -> dict[str, float]:
    """Compute statistics of tokenized captions; lengths are in words, `<unk>` included.

    Args:
        candidates: at least one caption.
        training: the training captions of the model, if known.
        vocabulary: the words of the model, if known.
        name: the tokenizer of the model's vocabulary.

    Returns:
        Statistics by name; "distinct words" are without `<unk>`. A vocabulary adds the share of its
        words that captions use; training captions add the share of captions that are not among
        them.
    """
    lengths = [len(words) for words in candidates]
    distinct = {tuple(words) for words in candidates}
    used_words = set(chain.from_iterable(distinct)) - {SPECIAL[UNK]}
    statistics = {
        "images": float(len(candidates)),
        "mean length": sum(lengths) / len(lengths),
        "shortest": float(min(lengths)),
        "longest": float(max(lengths)),
        "distinct words": float(len(used_words)),
        "distinct captions": float(len(distinct)),
    }
    if vocabulary is not None:
        statistics["share of vocabulary"] = len(used_words.intersection(vocabulary)) / len(
            vocabulary
        )
    if training is not None:
        tokenize = tokenizer_of_scores(name)
        new = distinct.difference(tuple(words_of(tokenize(caption))) for caption in training)
        new_count = sum(tuple(words) in new for words in candidates)
        statistics["share not in training"] = new_count / len(candidates)
    return statistics


def share_that_repeats(captions: Sequence[Words], repeatable: Collection[str]) -> float:
    """The share of captions that repeat a word which is not repeatable."""
    repeating = 0
    for caption in captions:
        words = [word for word in caption if word not in repeatable]
        repeating += len(set(words)) < len(words)
    return repeating / len(captions)


def omitted_words(
    captions: Sequence[Words], references: Sequence[Sequence[Words]], ignored: Collection[str]
) -> dict[str, tuple[int, int]]:
    """Find frequent words of references that are rare in captions, the most frequent first.

    A word is frequent if at least 3 images, and 2 % of all, have it in half of their references or
    more. It is rare if less than a quarter as many captions have it.

    Args:
        captions: one for each image.
        references: of each image.
        ignored: words to leave out.

    Returns:
        By word, how many images have it in their references, and how many captions have it.
    """
    image_counts: Counter[Any] = Counter()
    for image_references in references:
        counts = Counter(chain.from_iterable(map(set, image_references)))
        for word, count in counts.items():
            if 2 * count >= len(image_references):
                image_counts[word] += 1
    caption_counts = Counter(chain.from_iterable(map(set, captions)))
    min_count = max(3, len(captions) / 50)
    omitted = {}
    for word, count in image_counts.most_common():
        if count >= min_count and 4 * caption_counts[word] < count and word not in ignored:
            omitted[word] = (count, caption_counts[word])
    return omitted


class Estimate(NamedTuple):
    """A score with its interval at `LEVEL`, whose ends are NaN if a resample is undefined."""

    value: float
    low: float
    high: float

    def text(self, form: str) -> str:
        """Format the value and, in brackets, the interval, by the format `form`."""
        value, low, high = (f"{number:{form}}" for number in self)
        return value if math.isnan(self.low) else f"{value} ({low} to {high})"


def estimates(scores: Scores, seed: int = 0) -> dict[str, Estimate]:
    """Corpus scores by name with percentile bootstrap intervals, from the same resamples."""
    images = len(next(iter(scores.images.values())))
    resamples = resampled(scores.resampled, images, seed=seed)
    return {
        name: Estimate(value, *percentile_interval(resamples[name]))
        for name, value in scores.corpus.items()
    }


def percentile_interval(values: NDArray[np.float64]) -> tuple[float, float]:
    """The interval of the middle `LEVEL` of the values."""
    tail = 100 * (1 - LEVEL) / 2
    low, high = np.percentile(values, (tail, 100 - tail)).tolist()
    return low, high


def resampled(
    score: Callable[[NDArray[Any]], dict[str, NDArray[np.float64]]],
    images: int,
    *,
    seed: int = 0,
    count: int = RESAMPLES,
) -> dict[str, NDArray[np.float64]]:
    """Draw `count` bootstrap resamples of images and score them; scores by name, (count,).

    Args:
        score: computes scores by name, (R,), from how often R resamples contain each image,
            (R, images).
        images: number of images.
        seed: of the resamples.
        count: number of resamples.
    """
    rng, share = np.random.default_rng(seed), np.full(images, 1 / images)
    rows = max(1, MAX_COUNTS // images)  # at a time, for memory
    sizes = [min(rows, count - start) for start in range(0, count, rows)]
    parts = [score(rng.multinomial(images, share, size=size)) for size in sizes]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
