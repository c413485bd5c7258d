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

METEOR = "METEOR"

EXACT, STEM, SYNONYM, PARAPHRASE = range(4)

BEAM_WIDTH = 40

MODULE_WEIGHTS = (1, 0.6, 0.8, 0.6)
"""Weight of a matched word in the score, by module."""

WORD_WEIGHT, CHUNK_WEIGHT = 1 << 60, 1 << 40
"""Weights in the cost of an alignment: words before chunks before the distance."""

CLOSED = -1
"""The caption's next word if no chunk is open."""

MAX_PHRASE_LENGTH = 7
"""Maximum number of words of a phrase in the table of paraphrases."""

ALPHA, BETA, GAMMA, DELTA = 0.85, 0.2, 0.6, 0.75


class Match(NamedTuple):
    """Words of a caption that match words of a reference."""

    module: int  # EXACT, STEM, SYNONYM or PARAPHRASE
    start: int  # the first word in the reference
    length: int
    caption_start: int
    caption_length: int


Span: TypeAlias = tuple[int, int, str]
"""Successive words of a sentence: the index of the first, their number, and their text."""

ParaphraseTable: TypeAlias = dict[str, dict[str, int]]
"""The paraphrases of each phrase, with their ranks in METEOR's file."""


class Meteor:
    """Scores captions by METEOR as the COCO evaluation does.

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
        """Compute METEOR of captions, each by the reference with the largest score."""
        captions = list(map(_normalized_candidate, candidates))
        normalized_references = []
        for image_references in references:
            normalized_references.append(
                [normalized(" ".join(words)) for words in image_references]
            )
        texts: set[str] = set()
        for words in chain(captions, *normalized_references):
            texts.update(text for _, _, text in spans_of(words))
        table = paraphrases(self._paraphrases, texts)
        statistics = []
        for caption, image_references in zip(captions, normalized_references, strict=True):
            rows = []
            for reference in image_references:
                matches = self._matches(caption, reference, table)
                alignment = align(matches, len(reference), len(caption))
                rows.append(match_counts(caption, reference, alignment, self._forms.function_words))
            statistics.append(rows[meteor(np.array(rows, dtype=np.float64)).argmax()])
        return Scores.of_counts(
            np.array(statistics, dtype=np.float64), lambda rows: {METEOR: meteor(rows)}
        )

    def _matches(
        self, caption: list[str], reference: list[str], table: ParaphraseTable
    ) -> list[Match]:
        """Find all matches by module, in an order that decides between equally good alignments.

        Exact matches, stems and synonyms are in the order of the reference, then of the caption.
        Paraphrases of the reference's phrases come before those of the caption's, which repeat
        some pairs; those of one phrase are in the order of the table.
        """
        matches = []
        for start, word in enumerate(reference):
            for caption_start, caption_word in enumerate(caption):
                for module in self._modules(word, caption_word):
                    matches.append(Match(module, start, 1, caption_start, 1))
        matches.sort()
        reference_spans = [span for span in spans_of(reference) if span[2] in table]
        caption_spans = [span for span in spans_of(caption) if span[2] in table]
        for start, length, _, caption_start, count in pairs_of(
            reference_spans, caption_spans, table
        ):
            matches.append(Match(PARAPHRASE, start, length, caption_start, count))
        for caption_start, count, _, start, length in pairs_of(
            caption_spans, reference_spans, table
        ):
            matches.append(Match(PARAPHRASE, start, length, caption_start, count))
        return matches

    def _modules_of(self, word: str, caption_word: str) -> tuple[int, ...]:
        """The modules that match two words."""
        if word == caption_word:
            return (EXACT,)
        synsets, caption_synsets = self._forms.synsets(word), self._forms.synsets(caption_word)
        are_synonyms = not synsets.isdisjoint(caption_synsets)
        return (STEM,) * (stem(word) == stem(caption_word)) + (SYNONYM,) * are_synonyms


def _normalized_candidate(words: Sequence[str]) -> list[str]:
    return normalized(" ".join(UNKNOWN if word == SPECIAL[UNK] else word for word in words))


def spans_of(words: list[str]) -> Iterator[Span]:
    """The phrases of a sentence, up to `MAX_PHRASE_LENGTH` words, by first word and length."""
    for start in range(len(words)):
        for end in range(start + 1, min(start + MAX_PHRASE_LENGTH, len(words)) + 1):
            yield start, end - start, " ".join(words[start:end])


@stage("reading METEOR's paraphrases")
def paraphrases(path: Path, texts: Collection[str]) -> ParaphraseTable:
    """Read the pairs of METEOR's file that have both phrases among `texts`.

    Raises:
        InputError: the file is damaged.
    """
    table: ParaphraseTable = {}
    with reading(path), gzip.open(path, "rt", encoding="utf-8") as file:
        # Three lines are a probability and two phrases.
        lines = {f"{text}\n" for text in texts}
        for _, line, paraphrase in zip(file, file, file, strict=True):
            if line in lines and paraphrase in lines:
                ranks = table.setdefault(line[:-1], {})
                ranks[paraphrase[:-1]] = len(ranks)
                table.setdefault(paraphrase[:-1], {})
    return table


def pairs_of(
    spans: list[Span], paraphrase_spans: list[Span], table: ParaphraseTable
) -> list[tuple[int, int, int, int, int]]:
    """Start and length of each phrase, rank of a paraphrase, and its start and length, sorted."""
    pairs = []
    for start, length, text in spans:
        ranks = table[text]
        for paraphrase_start, paraphrase_length, paraphrase in paraphrase_spans:
            if paraphrase in ranks:
                pairs.append(
                    (start, length, ranks[paraphrase], paraphrase_start, paraphrase_length)
                )
    return sorted(pairs)


Hypothesis: TypeAlias = tuple[int, int, int, int, tuple[Match, ...]]
"""A partial alignment: its cost, used words of the caption (as bits), the next word of the
reference and of the caption, and the matches."""


def align(matches: list[Match], words: int, caption_words: int) -> list[Match]:
    """Choose the matches of the best alignment, in the order of the reference.

    Args:
        matches: all matches.
        words: number of words of the reference.
        caption_words: number of words of the caption.
    """
    matches_by_start: list[list[Match]] = [[] for _ in range(words)]
    uses, caption_uses = [0] * words, [0] * caption_words
    for match in matches:
        matches_by_start[match.start].append(match)
        for word in range(match.start, match.start + match.length):
            uses[word] += 1
        for word in range(match.caption_start, match.caption_start + match.caption_length):
            caption_uses[word] += 1
    beam: list[Hypothesis] = [(0, 0, 0, CLOSED, ())]
    for word, options in enumerate(matches_by_start):
        is_fixed = len(options) == 1 and uses[word] == caption_uses[options[0].caption_start] == 1
        is_fixed = is_fixed and options[0].length == options[0].caption_length == 1
        # Sorting is stable: hypotheses of equal cost keep their order from word to word.
        beam = sorted(_extend_beam(beam, word, options, is_fixed), key=itemgetter(0))[:BEAM_WIDTH]
    best = min(beam, key=lambda path: path[0] + CHUNK_WEIGHT * (path[3] != CLOSED))
    return [*best[4]]


def _extend_beam(
    beam: list[Hypothesis], word: int, options: list[Match], is_fixed: bool
) -> list[Hypothesis]:
    """Extend hypotheses by each match that starts at a word, or by none of them."""
    choices = []
    for match in options:
        bits = ((1 << match.caption_length) - 1) << match.caption_start
        share = 1 if match.module == EXACT else 2
        covered = match.length // share + match.caption_length // share
        end, caption_end = word + match.length, match.caption_start + match.caption_length
        choices.append((match, bits, covered * WORD_WEIGHT, end, caption_end))
    extended: list[Hypothesis] = []
    for hypothesis in beam:
        cost, used, following, caption_following, chosen_matches = hypothesis
        if following > word:
            extended.append(hypothesis)
            continue
        closing = CHUNK_WEIGHT * (caption_following != CLOSED)
        for match, bits, gain, end, caption_end in choices:
            if not used & bits:
                chunk = 0 if caption_following == match.caption_start else closing
                matches = (*chosen_matches, match)
                extended.append((cost + chunk - gain, used | bits, end, caption_end, matches))
                cost += abs(word - match.caption_start)
        if not is_fixed:
            extended.append((cost + closing, used, following, CLOSED, chosen_matches))
    return extended


def match_counts(
    caption: list[str],
    reference: list[str],
    alignment: list[Match],
    function_words: Collection[str],
) -> list[int]:
    """Count the statistics of METEOR, in the order of the authors' program.

    Returns:
        Words of caption and reference; function words of both; for each of four modules the matched
        content words of both and the matched function words of both; chunks; matched words of both.
    """
    modules = [[0, 0, 0, 0] for _ in MODULE_WEIGHTS]
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
    function_counts = [
        sum(word in function_words for word in words) for words in (caption, reference)
    ]
    return [*lengths, *function_counts, *chain.from_iterable(modules), chunks, *matched]


def meteor(statistics: NDArray[np.float64]) -> NDArray[np.float64]:
    """Compute METEOR, (rows,), from the counts of captions or of corpora, (rows, 23).

    Denkowski and Lavie 2014, section 2, with the parameters of METEOR 1.5 for English, which weigh
    content words more than function words.
    """
    words, functions = statistics[:, 0:2], statistics[:, 2:4]
    modules = statistics[:, 4:20].reshape(-1, 4, 4)
    matched = np.einsum(
        "rms,m->rs", DELTA * modules[:, :, :2] + (1 - DELTA) * modules[:, :, 2:], MODULE_WEIGHTS
    )
    total = DELTA * (words - functions) + (1 - DELTA) * functions
    precision, recall = _ratio(matched, total).T
    mean = _ratio(precision * recall, ALPHA * precision + (1 - ALPHA) * recall)
    fragmentation = _ratio(statistics[:, 20], statistics[:, 21:23].mean(axis=1))
    return mean * (1 - GAMMA * fragmentation**BETA)


def _ratio(numerator: NDArray[np.float64], denominator: NDArray[np.float64]) -> NDArray[np.float64]:
    """The quotient; 0 where the denominator is 0."""
    zeros = np.zeros_like(numerator)
    return np.divide(numerator, denominator, out=zeros, where=denominator > 0)


def packaged_file(name: str) -> Path:
    """Find a file of pycocoevalcap, which need not be importable.

    Raises:
        InputError: it is not installed.
    """
    package = find_spec("pycocoevalcap")
    for folder in package.submodule_search_locations or () if package else ():
        if (Path(folder) / name).is_file():
            return Path(folder) / name
    raise InputError(
        f"{METEOR} needs the package pycocoevalcap; `pip install pycocoevalcap`, or omit {METEOR}"
    )
