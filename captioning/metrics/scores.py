"""Captions as words, their scores, and bootstrap confidence intervals.

Efron and Tibshirani, "An Introduction to the Bootstrap", 1993, section 13.3.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from captioning.data.tokenizers import TokenizerName, tokenizer_of_scores
from captioning.data.tokens import words_of
from captioning.data.vocabulary import SPECIAL, UNK

Words: TypeAlias = Sequence[Hashable]
"""A caption as its words, or their ids."""

RESAMPLES = 1000
LEVEL = 0.95
BLOCK = 4_000_000
"""Counts in memory at a time, 32 MB."""

COUNTS = ("images", "distinct captions", "distinct words", "shortest", "longest")
"""The statistics of `diversity` that are whole numbers."""


Formula: TypeAlias = Callable[[NDArray[np.float64]], dict[str, NDArray[np.float64]]]
"""Maps counts, (rows, S), to scores by name, (rows,)."""


@dataclass(frozen=True)
class Scores:
    """The scores of one caption per image, by one metric or several.

    Attributes:
        corpus: scores of all images together by name, such as "BLEU-1" to "BLEU-4" or "CIDEr".
        images: for the same names, the scores of each image, in the order of the captions.
        summed: counts of each caption, (images, S), and formulas for scores of a corpus, which
            sums the counts over its images, as BLEU does; other scores are means over images.
    """

    corpus: dict[str, float]
    images: dict[str, NDArray[np.float64]]
    summed: Sequence[tuple[NDArray[np.float64], Formula]] = ()

    @classmethod
    def of(cls, name: str, images: NDArray[np.float64]) -> "Scores":
        """Scores of a metric whose corpus score is the mean over images."""
        return cls({name: float(images.mean())}, {name: images})

    @classmethod
    def of_counts(cls, counts: NDArray[np.float64], formula: Formula) -> "Scores":
        """Scores by a formula of counts, (images, S), which a corpus sums over its images."""
        corpus = formula(counts.sum(axis=0, keepdims=True))
        means = {name: float(score) for name, [score] in corpus.items()}
        return cls(means, formula(counts), [(counts, formula)])

    @classmethod
    def joined(cls, several: Sequence["Scores"]) -> "Scores":
        """The scores by several metrics of the same captions."""
        return cls(
            {name: score for each in several for name, score in each.corpus.items()},
            {name: scores for each in several for name, scores in each.images.items()},
            [part for each in several for part in each.summed],
        )

    def resampled(self, counts: NDArray[np.integer]) -> dict[str, NDArray[np.float64]]:
        """The corpus scores of R bootstrap resamples by name, (R,).

        CIDEr keeps the document frequencies of all images. `counts`, (R, images), says how often
        each resample has each image.
        """
        weights = counts / counts.sum(axis=1, keepdims=True)
        found = {name: weights @ scores for name, scores in self.images.items()}
        for statistics, formula in self.summed:
            found |= formula(counts @ statistics)
        return found


Scorer: TypeAlias = Callable[[Sequence[Sequence[str]], Sequence[Sequence[Sequence[str]]]], Scores]
"""Scores the words of one caption per image against the words of the image's references."""

PhotoScorer: TypeAlias = Callable[
    [Sequence[str], Sequence[Sequence[str]], Sequence[Hashable]], Scores
]
"""Scores untokenized captions against references and photos; the last argument has image ids."""


def generated_tokens(caption: str, name: TokenizerName = "ptb") -> list[str]:
    """The tokens of a generated caption for scores, by the vocabulary's tokenizer `name`.

    `<unk>` is one token.
    """
    first, *others = map(tokenizer_of_scores(name), caption.split(SPECIAL[UNK]))
    return first + [token for part in others for token in (SPECIAL[UNK], *part)]


def generated_words(caption: str, name: TokenizerName = "ptb") -> list[str]:
    """The words of a generated caption for scores; `<unk>` is one word."""
    return words_of(generated_tokens(caption, name))


def diversity(
    candidates: Sequence[Words],
    training: Iterable[str] | None = None,
    vocabulary: Collection[str] | None = None,
    name: TokenizerName = "ptb",
) -> dict[str, float]:
    """Statistics of captions, given as words; lengths are in words, `<unk>` included.

    Args:
        candidates: at least one caption.
        training: the captions that the model was trained on, if known.
        vocabulary: the model's words, if known.
        name: the tokenizer of the model's vocabulary.

    Returns:
        Statistics by name; "distinct words" are without `<unk>`. A vocabulary adds the share of it
        that captions use; training captions add the share of captions that differ from all of them.
    """
    lengths = [len(words) for words in candidates]
    distinct = {tuple(words) for words in candidates}
    used = {word for words in distinct for word in words} - {SPECIAL[UNK]}
    statistics = {
        "images": float(len(candidates)),
        "mean length": sum(lengths) / len(lengths),
        "shortest": float(min(lengths)),
        "longest": float(max(lengths)),
        "distinct words": float(len(used)),
        "distinct captions": float(len(distinct)),
    }
    if vocabulary is not None:
        statistics["share of vocabulary"] = len(used.intersection(vocabulary)) / len(vocabulary)
    if training is not None:
        cut = tokenizer_of_scores(name)
        unseen = distinct.difference(tuple(words_of(cut(caption))) for caption in training)
        new = sum(tuple(words) in unseen for words in candidates)
        statistics["share not in training"] = new / len(candidates)
    return statistics


def share_that_repeats(captions: Sequence[Words], repeatable: Collection[str]) -> float:
    """The share of captions that say another than these words again."""
    others = [[word for word in words if word not in repeatable] for words in captions]
    return sum(len(set(words)) < len(words) for words in others) / len(others)


def omitted_words(
    captions: Sequence[Words], references: Sequence[Sequence[Words]], others: Collection[str]
) -> dict[str, tuple[int, int]]:
    """Words that people often write and captions never or rarely say, the most frequent first.

    A word is frequent if at least half of the references of 3 images, and of 2 % of them, have it,
    and rare if it is said less than a quarter as often; `others` are not looked at. Returns by word
    how many images have it in their references, and how many captions.
    """
    wrote: Counter[Any] = Counter()
    for several in references:
        counts = Counter(word for words in several for word in {*words})
        wrote.update(word for word, count in counts.items() if 2 * count >= len(several))
    said = Counter(word for words in captions for word in {*words})
    least = max(3, len(captions) / 50)
    return {
        word: (count, said[word])
        for word, count in wrote.most_common()
        if count >= least and 4 * said[word] < count and word not in others
    }


class Estimate(NamedTuple):
    """A score with its interval at `LEVEL`, whose ends are NaN if a resample is undefined."""

    value: float
    low: float
    high: float

    def text(self, form: str) -> str:
        """The value and, in brackets, the interval; each by the format `form`."""
        value, low, high = (f"{each:{form}}" for each in self)
        return value if math.isnan(self.low) else f"{value} ({low} to {high})"


def estimates(scores: Scores, seed: int = 0) -> dict[str, Estimate]:
    """Corpus scores by name with percentile bootstrap intervals over images; same resamples."""
    images = len(next(iter(scores.images.values())))
    found = resampled(scores.resampled, images, seed)
    return {
        name: Estimate(value, *percentile_interval(found[name]))
        for name, value in scores.corpus.items()
    }


def percentile_interval(values: NDArray[np.float64]) -> tuple[float, float]:
    """The interval that holds the middle `LEVEL` of the values."""
    tail = 100 * (1 - LEVEL) / 2
    low, high = np.percentile(values, (tail, 100 - tail)).tolist()
    return low, high


def resampled(
    scored: Callable[[NDArray[Any]], dict[str, NDArray[np.float64]]],
    images: int,
    seed: int = 0,
    count: int = RESAMPLES,
) -> dict[str, NDArray[np.float64]]:
    """The scores of `count` resamples by name, from how often each of them has each image.

    `scored` gives the scores by name, (R,), of R resamples, (R, images).
    """
    rng, share = np.random.default_rng(seed), np.full(images, 1 / images)
    rows = max(1, BLOCK // images)  # at a time, for memory
    sizes = [min(rows, count - start) for start in range(0, count, rows)]
    parts = [scored(rng.multinomial(images, share, size=size)) for size in sizes]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
