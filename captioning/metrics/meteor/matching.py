"""Which words and phrases of two sentences METEOR may match, and by what."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from captioning.metrics.meteor.paraphrases import Paraphrases, Phrase, loaded
from captioning.metrics.meteor.word_forms import WordForms, stem

EXACT, STEM, SYNONYM, PARAPHRASE = range(4)


class Match(NamedTuple):
    """Words of a caption that match words of a reference.

    Attributes:
        module: EXACT, STEM, SYNONYM or PARAPHRASE.
        start: the first word in the reference.
        length: how many words of the reference.
        caption_start: the first word in the caption.
        caption_length: how many words of the caption.
    """

    module: int
    start: int
    length: int
    caption_start: int
    caption_length: int


class Sentence(NamedTuple):
    """A caption or reference as METEOR compares it.

    Attributes:
        words: of the text.
        functions: which of them are function words.
        phrases: the known phrases and beginnings of phrases, by their first word and length.
        nodes: the numbers of these phrases.
    """

    words: list[str]
    functions: list[bool]
    phrases: list[Phrase]
    nodes: frozenset[int]


class Matcher:
    """Finds matches.

    Args:
        jar: METEOR's program, for what it knows of words.
        paraphrases: METEOR's table, compressed.

    Raises:
        InputError: one of them is damaged.
    """

    def __init__(self, jar: Path, paraphrases: Path) -> None:
        self._forms = WordForms(jar)
        self._table: Paraphrases = loaded(paraphrases)
        self._paraphrases: dict[int, dict[int, int]] = {}
        self._modules: dict[str, dict[str, tuple[int, ...]]] = defaultdict(dict)

    def sentences(self, texts: Sequence[list[str]]) -> list[Sentence]:
        """Sentences of words; all at once, since the table is searched for all together."""
        found = self._table.occurrences(texts)
        return [
            Sentence(
                words,
                [word in self._forms.function_words for word in words],
                sorted(phrases),
                frozenset(node for _, _, node in phrases),
            )
            for words, phrases in zip(texts, found, strict=True)
        ]

    def matches(self, caption: Sentence, reference: Sentence) -> list[Match]:
        """All matches by module, in an order that decides between alignments equally good.

        Exact matches, stems and synonyms come in the order of the reference, then of the caption.
        Of paraphrases, those of the reference's phrases come first, then those of the caption's,
        which are the same pairs in part; those of one phrase come in the order of the table.
        """
        found: tuple[list[Match], ...] = ([], [], [])
        for start, word in enumerate(reference.words):
            known = self._modules[word]
            for caption_start, other in enumerate(caption.words):
                modules = known.get(other)
                if modules is None:
                    modules = known[other] = self._related(word, other)
                for module in modules:
                    found[module].append(Match(module, start, 1, caption_start, 1))
        return [*found[EXACT], *found[STEM], *found[SYNONYM], *self._phrases(caption, reference)]

    def _related(self, word: str, other: str) -> tuple[int, ...]:
        """The modules that match two words."""
        if word == other:
            return (EXACT,)
        modules = []
        if stem(word) == stem(other):
            modules.append(STEM)
        if not self._forms.synsets(word).isdisjoint(self._forms.synsets(other)):
            modules.append(SYNONYM)
        return tuple(modules)

    def _phrases(self, caption: Sentence, reference: Sentence) -> list[Match]:
        """The paraphrases, twice where the table has them in both directions."""
        return [
            *(
                Match(PARAPHRASE, start, length, caption_start, caption_length)
                for start, length, caption_start, caption_length in self._pairs(reference, caption)
            ),
            *(
                Match(PARAPHRASE, start, length, caption_start, caption_length)
                for caption_start, caption_length, start, length in self._pairs(caption, reference)
            ),
        ]

    def _pairs(self, sentence: Sentence, other: Sentence) -> Iterator[tuple[int, int, int, int]]:
        """Start and length of the phrases of a sentence, and of their paraphrases in another."""
        for start, length, node in sentence.phrases:
            known = self._of(node)
            for paraphrase in sorted(known.keys() & other.nodes, key=known.__getitem__):
                for other_start, other_length, other_node in other.phrases:
                    if other_node == paraphrase:
                        yield start, length, other_start, other_length

    def _of(self, node: int) -> dict[int, int]:
        found = self._paraphrases.get(node)
        if found is None:
            found = self._paraphrases[node] = self._table.of_phrase(node)
        return found
