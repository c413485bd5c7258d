"""METEOR 1.5 for English, without Java.

Denkowski and Lavie, "Meteor Universal: Language Specific Translation Evaluation for Any Target
Language", WMT 2014, https://aclanthology.org/W14-3348. Where the papers are ambiguous, for instance
about which of two equally good alignments counts, this follows the authors' program.

A score is of an alignment of a caption with a reference (section 2): each word is in at most one
match, and of all such alignments the one counts that covers the most words, then has the fewest
chunks, then the smallest distance. A chunk is a run of matches that are adjacent and in the same
order on both sides. A beam search over the words of the reference finds the alignment. These
details are the program's, not the paper's:

- A match of one word with one word that overlaps no other match is always in the alignment.
- Of other matches than exact ones, half of the words count, rounded down on each side. So a stem,
  synonym or paraphrase of a single word is worth nothing, and less than avoiding a chunk.
- The distance between the start positions is summed over the matches that an alignment skips. Of
  several matches at one word, each adds the distances of those before it; skipping the word adds
  the distances of all.
- A chunk counts when it ends. So of equal alignments, one with an open chunk is preferred.
"""

import gzip
from collections.abc import Collection, Iterator, Sequence
from functools import cache
from importlib.util import find_spec
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from captioning.data.vocabulary import SPECIAL, UNK
from captioning.errors import InputError, reading
from captioning.metrics.meteor_words import UNKNOWN, WordForms, normalized, stem
from captioning.metrics.scores import Scores
from captioning.progress_bar import stage

NAME = "METEOR"

EXACT, STEM, SYNONYM, PARAPHRASE = range(4)

BEAM = 40
"""The beam width, at each word and at the end."""

WEIGHTS = (1, 0.6, 0.8, 0.6)
"""Of a matched word in the score, by module."""

WORDS, CHUNK = 1 << 60, 1 << 40
"""Weights in the cost of an alignment: words first, then chunks, then the distance."""

CLOSED = -1
"""Stands for the caption's next word if no chunk is open."""

LONGEST = 7
"""The most words of a phrase in the table of paraphrases."""

ALPHA, BETA, GAMMA, DELTA = 0.85, 0.2, 0.6, 0.75


class Match(NamedTuple):
    """Words of a caption that match words of a reference."""

    module: int  # EXACT, STEM, SYNONYM or PARAPHRASE
    start: int  # the first word in the reference
    length: int
    caption_start: int
    caption_length: int


Phrase: TypeAlias = tuple[int, int, str]
"""Successive words of a sentence: the first, their number, and their text."""

Table: TypeAlias = dict[str, dict[str, int]]
"""The paraphrases of each phrase, with their ranks in METEOR's file."""


class Meteor:
    """Scores captions by METEOR, as the COCO evaluation does.

    Raises:
        InputError: pycocoevalcap, which contains the synonyms and paraphrases, is not installed.
    """

    def __init__(self) -> None:
        self._forms = WordForms(packaged_file("meteor/meteor-1.5.jar"))
        self._paraphrases = packaged_file("meteor/data/paraphrase-en.gz")
        self._modules = cache(self._modules_of)

    def __call__(
        self, candidates: Sequence[Sequence[str]], references: Sequence[Sequence[Sequence[str]]]
    ) -> Scores:
        """METEOR of captions' words, each with the reference that gives the largest score."""
        captions = [
            normalized(" ".join(UNKNOWN if word == SPECIAL[UNK] else word for word in words))
            for words in candidates
        ]
        written = [[normalized(" ".join(words)) for words in several] for several in references]
        sentences = chain(captions, *written)
        texts = {text for words in sentences for _, _, text in phrases_of(words)}
        table = paraphrases(self._paraphrases, texts)
        statistics = []
        for caption, several in zip(captions, written, strict=True):
            rows = []
            for reference in several:
                matches = self._matches(caption, reference, table)
                alignment = align(matches, len(reference), len(caption))
                rows.append(match_counts(caption, reference, alignment, self._forms.function_words))
            statistics.append(rows[meteor(np.array(rows, dtype=np.float64)).argmax()])
        return Scores.of_counts(
            np.array(statistics, dtype=np.float64), lambda rows: {NAME: meteor(rows)}
        )

    def _matches(self, caption: list[str], reference: list[str], table: Table) -> list[Match]:
        """All matches by module, in an order that decides between equally good alignments.

        Exact matches, stems and synonyms are in the order of the reference, then of the caption.
        Paraphrases of the reference's phrases come before those of the caption's, which repeat
        some pairs; those of one phrase are in the order of the table.
        """
        found = sorted(
            Match(module, start, 1, caption_start, 1)
            for start, word in enumerate(reference)
            for caption_start, other in enumerate(caption)
            for module in self._modules(word, other)
        )
        theirs, own = (
            [phrase for phrase in phrases_of(words) if phrase[2] in table]
            for words in (reference, caption)
        )
        for start, length, _, caption_start, count in pairs_of(theirs, own, table):
            found.append(Match(PARAPHRASE, start, length, caption_start, count))
        for caption_start, count, _, start, length in pairs_of(own, theirs, table):
            found.append(Match(PARAPHRASE, start, length, caption_start, count))
        return found

    def _modules_of(self, word: str, other: str) -> tuple[int, ...]:
        """The modules that match two words."""
        if word == other:
            return (EXACT,)
        has_synset = not self._forms.synsets(word).isdisjoint(self._forms.synsets(other))
        return (STEM,) * (stem(word) == stem(other)) + (SYNONYM,) * has_synset


def phrases_of(words: list[str]) -> Iterator[Phrase]:
    """The phrases of a sentence that a table may have, by first word and length."""
    for start in range(len(words)):
        for end in range(start + 1, min(start + LONGEST, len(words)) + 1):
            yield start, end - start, " ".join(words[start:end])


@stage("reading METEOR's paraphrases")
def paraphrases(path: Path, texts: Collection[str]) -> Table:
    """The pairs of METEOR's file that have both phrases among `texts`.

    Raises:
        InputError: the file is damaged.
    """
    table: Table = {}
    with reading(path), gzip.open(path, "rt", encoding="utf-8") as file:
        # Three lines are a probability and two phrases.
        lines = {f"{text}\n" for text in texts}
        for _, line, other in zip(file, file, file, strict=True):
            if line in lines and other in lines:
                ranks = table.setdefault(line[:-1], {})
                ranks[other[:-1]] = len(ranks)
                table.setdefault(other[:-1], {})
    return table


def pairs_of(
    phrases: list[Phrase], others: list[Phrase], table: Table
) -> list[tuple[int, int, int, int, int]]:
    """Start and length of each phrase, the rank of a paraphrase, and its place among others."""
    return sorted(
        (start, length, table[text][paraphrase], other_start, other_length)
        for start, length, text in phrases
        for other_start, other_length, paraphrase in others
        if paraphrase in table[text]
    )


Partial: TypeAlias = tuple[int, int, int, int, tuple[Match, ...]]
"""Cost, used words of the caption (bits), next word of reference and caption, and the matches."""


def align(matches: list[Match], words: int, caption_words: int) -> list[Match]:
    """The alignment by some of the matches, in the order of the reference.

    `words` and `caption_words` are the numbers of words of the reference and of the caption.
    """
    starting: list[list[Match]] = [[] for _ in range(words)]
    uses, caption_uses = [0] * words, [0] * caption_words
    for match in matches:
        starting[match.start].append(match)
        for word in range(match.start, match.start + match.length):
            uses[word] += 1
        for word in range(match.caption_start, match.caption_start + match.caption_length):
            caption_uses[word] += 1
    partial: list[Partial] = [(0, 0, 0, CLOSED, ())]
    for word, options in enumerate(starting):
        fixed = len(options) == 1 and uses[word] == caption_uses[options[0].caption_start] == 1
        fixed = fixed and options[0].length == options[0].caption_length == 1
        # Sorting is stable: paths of equal cost keep their order from word to word.
        partial = sorted(_extended(partial, word, options, fixed), key=itemgetter(0))[:BEAM]
    return [*min(partial, key=lambda path: path[0] + CHUNK * (path[3] != CLOSED))[4]]


def _extended(
    partial: list[Partial], word: int, options: list[Match], fixed: bool
) -> list[Partial]:
    """The partial alignments extended by each match that starts at a word, or by none of them."""
    choices = []
    for match in options:
        bits = ((1 << match.caption_length) - 1) << match.caption_start
        share = 1 if match.module == EXACT else 2
        covered = match.length // share + match.caption_length // share
        end, caption_end = word + match.length, match.caption_start + match.caption_length
        choices.append((match, bits, covered * WORDS, end, caption_end))
    found: list[Partial] = []
    for path in partial:
        cost, used, following, caption_following, before = path
        if following > word:
            found.append(path)
            continue
        closing = CHUNK * (caption_following != CLOSED)
        for match, bits, gain, end, caption_end in choices:
            if not used & bits:
                chunk = 0 if caption_following == match.caption_start else closing
                matches = (*before, match)
                found.append((cost + chunk - gain, used | bits, end, caption_end, matches))
                cost += abs(word - match.caption_start)
        if not fixed:
            found.append((cost + closing, used, following, CLOSED, before))
    return found


def match_counts(
    caption: list[str],
    reference: list[str],
    alignment: list[Match],
    function_words: Collection[str],
) -> list[int]:
    """The counts from which METEOR is computed, in the order of the authors' program.

    Returns:
        Words of caption and reference; function words of both; for each of four modules the matched
        content words of both and the matched function words of both; chunks; matched words of both.
    """
    modules = [[0, 0, 0, 0] for _ in WEIGHTS]
    matched, chunks, ends = [0, 0], 0, (-1, -1)
    for module, start, length, caption_start, caption_length in alignment:
        chunks += ends != (start, caption_start)
        ends = start + length, caption_start + caption_length
        spans = caption[caption_start : ends[1]], reference[start : ends[0]]
        for side, words in enumerate(spans):
            functions = sum(word in function_words for word in words)
            modules[module][side] += len(words) - functions
            modules[module][side + 2] += functions
            matched[side] += len(words)
    lengths = [len(caption), len(reference)]
    if chunks == 1 and matched == lengths:
        chunks = 0  # a complete match has no fragmentation, in the sum of a corpus either
    functions_of = [sum(map(function_words.__contains__, words)) for words in (caption, reference)]
    return [*lengths, *functions_of, *(n for module in modules for n in module), chunks, *matched]


def meteor(statistics: NDArray[np.float64]) -> NDArray[np.float64]:
    """METEOR, (rows,), from the counts of captions or their sums over a corpus, (rows, 23).

    Denkowski and Lavie 2014, section 2, with the parameters of METEOR 1.5 for English, which weigh
    content words more than function words.
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
    """The quotient; 0 where the denominator is 0."""
    return np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)


def packaged_file(name: str) -> Path:
    """The path of a file of pycocoevalcap, which need not be importable.

    Raises:
        InputError: it is not installed.
    """
    package = find_spec("pycocoevalcap")
    for folder in package.submodule_search_locations or () if package else ():
        if (Path(folder) / name).is_file():
            return Path(folder) / name
    raise InputError(
        f"{NAME} needs the package pycocoevalcap; `pip install pycocoevalcap`, or omit {NAME}"
    )
