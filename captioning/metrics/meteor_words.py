r"""Words for METEOR: their tokenization, stems, synonyms and function words.

METEOR splits more than the tokenizer of the COCO evaluation: `t-shirt` is two words, `'s` is an
apostrophe and an s, and `u.s.` is `us`. The rules reproduce the program's option `-norm`; they were
derived from its output for each character of the basic multilingual plane and for random text.
"""

import re
import zipfile
from collections import defaultdict
from functools import cache
from pathlib import Path

from captioning.errors import reading

BAR = "|||"
"""The separator of the authors' program, which removes it from captions."""

UNKNOWN = "unknownword"
"""Replaces `<unk>`, which METEOR would split, by a word that no reference has."""

LETTERS = (
    r"A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u017e\u0400-\u0527\u1d00-\u1d7f\ua640-\ua66e"
    r"\ua67e-\ua697"
)
PLAIN_TEXT = re.compile("[a-z ]*")

DOT = "\uffff"
"""Replaces each full stop of an ellipsis, which is one word; a code point without character."""

SPLITTING_RULES = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        ("[‘’`]", "'"),  # noqa: RUF001
        ("[“”]", '"'),
        ("--", "-"),
        (rf"([^{LETTERS}0-9\s.',\-])", r" \1 "),
        (r"\.{2,}", lambda dots: f" {DOT * len(dots[0])} "),
        (rf"([{LETTERS}0-9.])-([{LETTERS}0-9])", r"\1 \2"),
        ("–", "-"),  # noqa: RUF001
        # A comma stays only between digits: 1,000.
        ("([^0-9]),([^0-9])", r"\1 , \2"),
        ("([0-9]),([^0-9])", r"\1 , \2"),
        ("([^0-9]),([0-9])", r"\1 , \2"),
        ("''", ' " '),
        # An apostrophe between letters stays with the following ones: dog 's.
        (rf"([^{LETTERS}])'([^{LETTERS}])", r"\1 ' \2"),
        (rf"([^{LETTERS}0-9])'([{LETTERS}])", r"\1 ' \2"),
        (rf"([{LETTERS}])'([^{LETTERS}])", r"\1 ' \2"),
        (rf"([{LETTERS}])'([{LETTERS}])", r"\1 '\2"),
        ("([0-9])'(s)", r"\1 '\2"),
    )
]
HAS_LETTER = re.compile(f"[{LETTERS}]")
DOTTED_ABBREVIATIONS = frozenset({"v", "vs", "i.e", "rev", "e.g"})


def normalized(text: str) -> list[str]:
    """Split a text in lower case into words."""
    text = " ".join(text.replace(BAR, " ").split())
    if PLAIN_TEXT.fullmatch(text):
        return text.split()
    text = f" {text} "
    for pattern, replacement in SPLITTING_RULES:
        text = pattern.sub(replacement, text)
    words = text.split()
    normalized_words: list[str] = []
    for word, following in zip(words, [*words[1:], ""], strict=True):
        normalized_words += _split_full_stop(word, following)
    return [word.replace(DOT, ".") for word in normalized_words]


def _split_full_stop(word: str, following: str) -> list[str]:
    """Split off the full stop of a word if it ends a sentence."""
    bare_word = word[:-1]
    if not bare_word or not word.endswith("."):
        return [word]
    if "." in bare_word and HAS_LETTER.search(bare_word):
        return [word.replace(".", "")]  # u.s.
    if bare_word in DOTTED_ABBREVIATIONS or "a" <= following[:1] <= "z":
        return [word]
    return [bare_word, "."]


VOWEL_CONSONANT = re.compile("[aeiouy][^aeiouy]")
FIRST_REGION = re.compile("gener|commun|arsen")

ENDINGS = (
    *(("s", ""), ("ses", "s"), ("xes", "x"), ("zes", "z"), ("ches", "ch"), ("shes", "sh")),
    *(("men", "man"), ("ies", "y"), ("es", "e"), ("es", ""), ("ed", "e"), ("ed", "")),
    *(("ing", "e"), ("ing", ""), ("er", ""), ("est", ""), ("er", "e"), ("est", "e")),
)
"""WordNet's endings of inflected words and of their base forms, in WordNet's order."""


class WordForms:
    """Synonyms and function words for English from METEOR's program, an archive."""

    def __init__(self, jar: Path) -> None:
        with reading(jar, zipfile.BadZipFile, KeyError), zipfile.ZipFile(jar) as archive:
            synsets, exceptions, functions = (
                archive.read(name).decode().splitlines()
                for name in (
                    "synonym/english.synsets",
                    "synonym/english.exceptions",
                    "function/english.words",
                )
            )
        self.function_words = frozenset(functions)
        self._synsets = dict(zip(synsets[::2], synsets[1::2], strict=True))
        self._irregular = defaultdict(list)
        for base, forms in zip(exceptions[::2], exceptions[1::2], strict=True):
            for form in forms.split():
                self._irregular[form].append(base)
        self.synsets = cache(self._synsets_of)

    def _synsets_of(self, word: str) -> frozenset[str]:
        """The numbers in WordNet of the synsets of a word and of its base form."""
        numbers: set[str] = set()
        for form in (word, *self._base_forms(word)):
            numbers.update(self._synsets.get(form, "").split())
        return frozenset(numbers)

    def _base_forms(self, word: str) -> list[str]:
        """The irregular base forms; if there are none, the first one by the rules for endings."""
        if word in self._irregular:
            return self._irregular[word]
        if len(word) <= 2 or word.endswith("ss"):
            return []
        bases = (word.removesuffix(end) + base for end, base in ENDINGS if word.endswith(end))
        return [base for base in bases if base in self._synsets][:1]


@cache
def stem(word: str) -> str:
    """Stem a word by the Snowball stemmer for English, as METEOR's program does.

    NLTK's stemmer keeps an e that one step adds (realization, realize) and a later step should
    delete; this deletes it, if it is in the region R2.
    """
    from nltk.stem.snowball import EnglishStemmer  # takes half a second

    word_stem = EnglishStemmer().stem(word)
    if not word_stem.endswith("e") or word.startswith(word_stem):
        return word_stem
    marked_word = re.sub("(^|[aeiouy])y", r"\1Y", word)
    region_1 = FIRST_REGION.match(marked_word) or VOWEL_CONSONANT.search(marked_word)
    region_2 = region_1 and VOWEL_CONSONANT.search(marked_word, region_1.end())
    return word_stem[:-1] if region_2 and region_2.end() < len(word_stem) else word_stem
