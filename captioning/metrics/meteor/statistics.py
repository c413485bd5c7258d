"""METEOR's score from counts: of one caption, or summed over a corpus.

Denkowski and Lavie 2014, section 2, with the parameters of METEOR 1.5 for English, where content
words count more than function words.
"""

import numpy as np
from numpy.typing import NDArray

from captioning.metrics.meteor.alignment import chunk_count
from captioning.metrics.meteor.matching import Match, Sentence

ALPHA, BETA, GAMMA, DELTA = 0.85, 0.2, 0.6, 0.75
WEIGHTS = np.array([1, 0.6, 0.8, 0.6])
"""Of exact, stem, synonym and paraphrase matches."""

NUMBERS = 23
"""How many `counts` there are."""


def counts(caption: Sentence, reference: Sentence, alignment: list[Match]) -> list[int]:
    """What METEOR counts of a caption and a reference, in the order of its program.

    Returns:
        Words of the caption and the reference; function words of both; for each of four modules
        matched content words of both and matched function words of both; chunks; matched words
        of both.
    """
    modules = [[0, 0, 0, 0] for _ in WEIGHTS]
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
        chunks = 0  # nothing is fragmented, in the sum of a corpus either
    functions = [sum(caption.functions), sum(reference.functions)]
    return [
        *words,
        *functions,
        *(n for module in modules for n in module),
        chunks,
        *matched,
    ]


def meteor(statistics: NDArray[np.float64]) -> NDArray[np.float64]:
    """METEOR of rows of counts.

    Args:
        statistics: (rows, NUMBERS).
    """
    words, functions = statistics[:, 0:2], statistics[:, 2:4]
    modules = statistics[:, 4:20].reshape(-1, 4, 4)
    matched = np.einsum(
        "rms,m->rs", DELTA * modules[:, :, :2] + (1 - DELTA) * modules[:, :, 2:], WEIGHTS
    )
    total = DELTA * (words - functions) + (1 - DELTA) * functions
    precision, recall = _ratio(matched, total).T
    mean = _ratio(precision * recall, ALPHA * precision + (1 - ALPHA) * recall)
    fragmentation = _ratio(statistics[:, 20], statistics[:, 21:23].mean(axis=1))
    return mean * (1 - GAMMA * fragmentation**BETA)


def _ratio(part: NDArray[np.float64], whole: NDArray[np.float64]) -> NDArray[np.float64]:
    """The quotient, 0 where there is nothing to divide by."""
    return np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)
