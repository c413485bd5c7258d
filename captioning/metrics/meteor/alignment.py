"""The alignment of a caption with a reference: which words and phrases match.

Denkowski and Lavie 2014, section 2: each word is in at most one match, and of all such alignments
the one counts that covers the most words, then has the fewest chunks, then the smallest distance.
A chunk is a run of matches that are adjacent and in the same order on both sides. A beam search
over the words of the reference finds the alignment. These details follow the authors' program, not
the paper:

- A match of one word with one word that overlaps no other match is always in the alignment.
- Other matches count `COVERED` times their number of words, rounded down on each side. So a stem,
  synonym or paraphrase of a single word is worth nothing, and less than avoiding a chunk.
- The distance between the start positions is summed over the matches that an alignment skips. Of
  several matches at one word, each adds the distances of those before it; skipping the word adds
  the distances of all.
- A chunk counts when it ends. So of equal alignments, one with an open chunk is preferred.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from captioning.metrics.meteor.paraphrases import Paraphrases, Phrase
from captioning.metrics.meteor.word_forms import WordForms, stem

EXACT, STEM, SYNONYM, PARAPHRASE = range(4)

BEAM = 40
"""The beam width, at each word and at the end."""

COVERED = (1, 0.6, 0.8, 0.6)
"""The weight of a covered word, by module."""

WORDS, CHUNK = 1 << 60, 1 << 40
"""Weights in the cost of an alignment: words first, then chunks, then the distance."""

CLOSED = -1
"""Stands for the caption's next word if no chunk is open."""


class Match(NamedTuple):
    """Words of a caption that match words of a reference.

    Attributes:
        module: EXACT, STEM, SYNONYM or PARAPHRASE.
        start: the first word in the reference.
        length: the number of words in the reference.
        caption_start: the first word in the caption.
        caption_length: the number of words in the caption.
    """

    module: int
    start: int
    length: int
    caption_start: int
    caption_length: int


class Sentence(NamedTuple):
    """A caption or reference as METEOR compares it.

    Attributes:
        words: the words.
        functions: for each word, whether it is a function word.
        phrases: phrases of the paraphrase table and their prefixes, by first word and length.
        nodes: the nodes of these phrases in the table.
    """

    words: list[str]
    functions: list[bool]
    phrases: list[Phrase]
    nodes: frozenset[int]


class Matcher:
    """Finds all possible matches, with the synonyms of METEOR's program and its paraphrases."""

    def __init__(self, jar: Path, paraphrases: Path) -> None:
        self._forms = WordForms(jar)
        self._table = _table(paraphrases)
        self._modules: dict[str, dict[str, tuple[int, ...]]] = defaultdict(dict)
        self._paraphrases = cache(self._table.of_phrase)

    def sentences(self, texts: Sequence[list[str]]) -> list[Sentence]:
        """Sentences from their words; one search of the table for all of them."""
        return [
            Sentence(
                words,
                [word in self._forms.function_words for word in words],
                sorted(phrases),
                frozenset(node for _, _, node in phrases),
            )
            for words, phrases in zip(texts, self._table.occurrences(texts), strict=True)
        ]

    def matches(self, caption: Sentence, reference: Sentence) -> list[Match]:
        """All matches by module, in an order that decides between equally good alignments.

        Exact matches, stems and synonyms are in the order of the reference, then of the caption.
        Paraphrases of the reference's phrases come before those of the caption's, which repeat
        some pairs; those of one phrase are in the order of the table.
        """
        found: tuple[list[Match], ...] = ([], [], [])
        for start, word in enumerate(reference.words):
            known = self._modules[word]
            for caption_start, other in enumerate(caption.words):
                if other not in known:
                    known[other] = self._modules_of(word, other)
                for module in known[other]:
                    found[module].append(Match(module, start, 1, caption_start, 1))
        of_reference = (
            Match(PARAPHRASE, *pair, *other) for pair, other in self._pairs(reference, caption)
        )
        of_caption = (
            Match(PARAPHRASE, *other, *pair) for pair, other in self._pairs(caption, reference)
        )
        return [*found[EXACT], *found[STEM], *found[SYNONYM], *of_reference, *of_caption]

    def _modules_of(self, word: str, other: str) -> tuple[int, ...]:
        """The modules that match two words."""
        if word == other:
            return (EXACT,)
        has_synset = not self._forms.synsets(word).isdisjoint(self._forms.synsets(other))
        return (STEM,) * (stem(word) == stem(other)) + (SYNONYM,) * has_synset

    def _pairs(
        self, sentence: Sentence, other: Sentence
    ) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
        """Start and length of a sentence's phrases, and of their paraphrases in another one."""
        for start, length, node in sentence.phrases:
            known = self._paraphrases(node)
            for paraphrase in sorted(known.keys() & other.nodes, key=known.__getitem__):
                for other_start, other_length, other_node in other.phrases:
                    if other_node == paraphrase:
                        yield (start, length), (other_start, other_length)


_table = lru_cache(maxsize=1)(Paraphrases.load)
"""The table of a file, read once per process."""

Linked: TypeAlias = tuple[Any, Match] | None
"""A linked list of matches, the last one first."""

Partial: TypeAlias = tuple[int, int, int, int, Linked]
"""Cost, used words of the caption (bits), next word of reference and caption, and the matches."""

cost_of = itemgetter(0)


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
    partial: list[Partial] = [(0, 0, 0, CLOSED, None)]
    for word, options in enumerate(starting):
        fixed = len(options) == 1 and uses[word] == caption_uses[options[0].caption_start] == 1
        fixed = fixed and options[0].length == options[0].caption_length == 1
        # Sorting is stable: paths of equal cost keep their order from word to word.
        partial = _extended(sorted(partial, key=cost_of)[:BEAM], word, options, fixed)
    found: list[Match] = []
    linked = min(sorted(partial, key=cost_of)[:BEAM], key=_closed_cost)[4]
    while linked is not None:
        linked, match = linked
        found.append(match)
    return found[::-1]


def _extended(
    partial: list[Partial], word: int, options: list[Match], fixed: bool
) -> list[Partial]:
    """The partial alignments extended by each match that starts at a word, or by none of them."""
    choices = []
    for match in options:
        bits = ((1 << match.caption_length) - 1) << match.caption_start
        weight = COVERED[match.module]
        covered = int(weight * match.length) + int(weight * match.caption_length)
        end, caption_end = word + match.length, match.caption_start + match.caption_length
        choices.append((match, bits, covered * WORDS, end, caption_end))
    found: list[Partial] = []
    for path in partial:
        cost, used, following, caption_following, linked = path
        if following > word:
            found.append(path)
            continue
        closing = _closed_cost(path) - cost
        for match, bits, gain, end, caption_end in choices:
            if not used & bits:
                chunk = 0 if caption_following == match.caption_start else closing
                found.append((cost + chunk - gain, used | bits, end, caption_end, (linked, match)))
                cost += abs(word - match.caption_start)
        if not fixed:
            found.append((cost + closing, used, following, CLOSED, linked))
    return found


def _closed_cost(path: Partial) -> int:
    """The cost, including the open chunk."""
    return path[0] + (0 if path[3] == CLOSED else CHUNK)


def chunk_count(alignment: list[Match]) -> int:
    """The number of chunks of an alignment."""
    count, ends = 0, (-1, -1)
    for match in alignment:
        count += ends != (match.start, match.caption_start)
        ends = (match.start + match.length, match.caption_start + match.caption_length)
    return count
