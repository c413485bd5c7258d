"""METEOR of captions with several references.

Denkowski and Lavie 2014, section 2, with the parameters of METEOR 1.5 for English, which weigh
content words more than function words.
"""

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from captioning.data.vocabulary import SPECIAL, UNK
from captioning.metrics.meteor.alignment import (
    COVERED,
    Match,
    Matcher,
    Sentence,
    align,
    chunk_count,
)
from captioning.metrics.meteor.word_forms import UNKNOWN, normalized, text_of_words
from captioning.metrics.scores import SummedScores, check_pairs
from captioning.metrics.spice import packaged_file

NAME = "METEOR"

ALPHA, BETA, GAMMA, DELTA = 0.85, 0.2, 0.6, 0.75
COUNTS = 23
"""The length of what `match_counts` returns."""


class Meteor:
    """Scores captions by METEOR, as the COCO evaluation does.

    Raises:
        InputError: pycocoevalcap, which contains the synonyms and paraphrases, is not installed.
    """

    def __init__(self) -> None:
        jar = packaged_file(NAME, "meteor/meteor-1.5.jar")
        self._matcher = Matcher(jar, packaged_file(NAME, "meteor/data/paraphrase-en.gz"))

    def __call__(
        self, candidates: Sequence[Sequence[str]], references: Sequence[Sequence[Sequence[str]]]
    ) -> SummedScores:
        """METEOR of captions' words, each with the reference that gives the largest score."""
        check_pairs(candidates, references)
        captions = [
            text_of_words(UNKNOWN if word == SPECIAL[UNK] else word for word in words)
            for words in candidates
        ]
        written = [list(map(text_of_words, several)) for several in references]
        texts = list(dict.fromkeys([*captions, *(text for each in written for text in each)]))
        sentences = dict(
            zip(texts, self._matcher.sentences(list(map(normalized, texts))), strict=True)
        )
        rows = []
        for caption, several in zip(captions, written, strict=True):
            found = sentences[caption]
            for text in several:
                reference = sentences[text]
                matches = self._matcher.matches(found, reference)
                alignment = align(matches, len(reference.words), len(found.words))
                rows.append(match_counts(found, reference, alignment))
        statistics = np.array(rows, dtype=np.float64).reshape(-1, COUNTS)
        scores = meteor(statistics)
        ends = accumulate(map(len, written))
        best = [
            end - len(several) + int(np.argmax(scores[end - len(several) : end]))
            for end, several in zip(ends, written, strict=True)
        ]
        return SummedScores.of_statistics(statistics[best], lambda rows: {NAME: meteor(rows)})


def match_counts(caption: Sentence, reference: Sentence, alignment: list[Match]) -> list[int]:
    """The counts from which METEOR is computed, in the order of the authors' program.

    Returns:
        Words of caption and reference; function words of both; for each of four modules the matched
        content words of both and the matched function words of both; chunks; matched words of both.
    """
    modules = [[0, 0, 0, 0] for _ in COVERED]
    for match in alignment:
        of_module = modules[match.module]
        spans = (
            (caption, match.caption_start, match.caption_length),
            (reference, match.start, match.length),
        )
        for side, (sentence, start, length) in enumerate(spans):
            function_words = sum(sentence.functions[start : start + length])
            of_module[side] += length - function_words
            of_module[side + 2] += function_words
    matched = [sum(match.caption_length for match in alignment)]
    matched.append(sum(match.length for match in alignment))
    words = [len(caption.words), len(reference.words)]
    chunks = chunk_count(alignment)
    if chunks == 1 and matched == words:
        chunks = 0  # a complete match has no fragmentation, in the sum of a corpus either
    functions = [sum(caption.functions), sum(reference.functions)]
    return [*words, *functions, *(n for module in modules for n in module), chunks, *matched]


def meteor(statistics: NDArray[np.float64]) -> NDArray[np.float64]:
    """METEOR, (rows,), from the counts of captions or their sums over a corpus, (rows, COUNTS)."""
    words, functions = statistics[:, 0:2], statistics[:, 2:4]
    modules = statistics[:, 4:20].reshape(-1, 4, 4)
    matched = np.einsum(
        "rms,m->rs", DELTA * modules[:, :, :2] + (1 - DELTA) * modules[:, :, 2:], COVERED
    )
    total = DELTA * (words - functions) + (1 - DELTA) * functions
    precision, recall = _ratio(matched, total).T
    mean = _ratio(precision * recall, ALPHA * precision + (1 - ALPHA) * recall)
    fragmentation = _ratio(statistics[:, 20], statistics[:, 21:23].mean(axis=1))
    return mean * (1 - GAMMA * fragmentation**BETA)


def _ratio(part: NDArray[np.float64], whole: NDArray[np.float64]) -> NDArray[np.float64]:
    """The quotient; 0 where the denominator is 0."""
    return np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)
