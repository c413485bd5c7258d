"""Which words and phrases of two sentences METEOR may match, and by what."""

from collections import defaultdict
from collections.abc import Sequence
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
        phrases: the known phrases and beginnings of phrases.
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
        self._paraphrases: dict[int, frozenset[int]] = {}
        self._modules: dict[str, dict[str, tuple[int, ...]]] = defaultdict(dict)

    def sentences(self, texts: Sequence[list[str]]) -> list[Sentence]:
        """Sentences of words; all at once, since the table is searched for all together."""
        found = self._table.occurrences(texts)
        return [
            Sentence(
                words,
                [word in self._forms.function_words for word in words],
                phrases,
                frozenset(node for _, _, node in phrases),
            )
            for words, phrases in zip(texts, found, strict=True)
        ]

    def matches(self, caption: Sentence, reference: Sentence) -> list[Match]:
        """All matches, by module; those of a module in the order of the reference."""
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
        pairs: list[tuple[int, int]] = []
        for node in reference.nodes:
            pairs += [(node, other) for other in self._of(node) & caption.nodes]
        for node in caption.nodes:
            pairs += [(other, node) for other in self._of(node) & reference.nodes]
        if not pairs:
            return []
        places = [
            (place, other)
            for node, found in pairs
            for place, phrase in enumerate(reference.phrases)
            if phrase[2] == node
            for other, candidate in enumerate(caption.phrases)
            if candidate[2] == found
        ]
        return [
            Match(PARAPHRASE, *reference.phrases[place][:2], *caption.phrases[other][:2])
            for place, other in sorted(places)
        ]

    def _of(self, node: int) -> frozenset[int]:
        found = self._paraphrases.get(node)
        if found is None:
            found = self._paraphrases[node] = self._table.of_phrase(node)
        return found
