r"""Words for METEOR: how text is split into them, their stems, synonyms and function words.

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
"""Replaces `<unk>`, which would be split: one word that no reference has."""

LETTER = (
    r"A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u017e\u0400-\u0527\u1d00-\u1d7f\ua640-\ua66e"
    r"\ua67e-\ua697"
)
PLAIN = re.compile("[a-z ]*")

DOT = "\uffff"
"""Replaces each full stop of an ellipsis, which is one word; not a character."""

RULES = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        ("[‘’`]", "'"),  # noqa: RUF001
        ("[“”]", '"'),
        ("--", "-"),
        (rf"([^{LETTER}0-9\s.',\-])", r" \1 "),
        (r"\.{2,}", lambda dots: f" {DOT * len(dots[0])} "),
        (rf"([{LETTER}0-9.])-([{LETTER}0-9])", r"\1 \2"),
        ("–", "-"),  # noqa: RUF001
        # A comma stays only between digits: 1,000.
        ("([^0-9]),([^0-9])", r"\1 , \2"),
        ("([0-9]),([^0-9])", r"\1 , \2"),
        ("([^0-9]),([0-9])", r"\1 , \2"),
        ("''", ' " '),
        # An apostrophe between letters stays with the following ones: dog 's.
        (rf"([^{LETTER}])'([^{LETTER}])", r"\1 ' \2"),
        (rf"([^{LETTER}0-9])'([{LETTER}])", r"\1 ' \2"),
        (rf"([{LETTER}])'([^{LETTER}])", r"\1 ' \2"),
        (rf"([{LETTER}])'([{LETTER}])", r"\1 '\2"),
        ("([0-9])'(s)", r"\1 '\2"),
    )
]
HAS_LETTER = re.compile(f"[{LETTER}]")
ABBREVIATIONS = frozenset({"v", "vs", "i.e", "rev", "e.g"})


def normalized(text: str) -> list[str]:
    """The words of a text in lower case."""
    text = " ".join(text.replace(BAR, " ").split())
    if PLAIN.fullmatch(text):
        return text.split()
    text = f" {text} "
    for pattern, replacement in RULES:
        text = pattern.sub(replacement, text)
    words = text.split()
    found: list[str] = []
    for word, following in zip(words, [*words[1:], ""], strict=True):
        found += _without_full_stop(word, following)
    return [word.replace(DOT, ".") for word in found]


def _without_full_stop(word: str, following: str) -> list[str]:
    """A word, with its full stop split off if it ends a sentence."""
    before = word[:-1]
    if not before or not word.endswith("."):
        return [word]
    if "." in before and HAS_LETTER.search(before):
        return [word.replace(".", "")]  # u.s.
    if before in ABBREVIATIONS or "a" <= following[:1] <= "z":
        return [word]
    return [before, "."]


VOWEL_THEN_NOT = re.compile("[aeiouy][^aeiouy]")
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
        forms = [word, *self._base_forms(word)]
        return frozenset(n for form in forms for n in self._synsets.get(form, "").split())

    def _base_forms(self, word: str) -> list[str]:
        """The irregular base forms; without any, the first one by the rules for endings."""
        if word in self._irregular:
            return self._irregular[word]
        if len(word) <= 2 or word.endswith("ss"):
            return []
        bases = (word.removesuffix(end) + base for end, base in ENDINGS if word.endswith(end))
        return [base for base in bases if base in self._synsets][:1]


@cache
def stem(word: str) -> str:
    """The stem by the Snowball stemmer for English, as in METEOR's program.

    NLTK's stemmer keeps an e that one step adds (realization, realize) and a later step should
    delete; this deletes it, if it is in the region R2.
    """
    from nltk.stem.snowball import EnglishStemmer  # takes half a second

    found = EnglishStemmer().stem(word)
    if not found.endswith("e") or word.startswith(found):
        return found
    marked = re.sub("(^|[aeiouy])y", r"\1Y", word)
    first = FIRST_REGION.match(marked) or VOWEL_THEN_NOT.search(marked)
    second = first and VOWEL_THEN_NOT.search(marked, first.end())
    return found[:-1] if second and second.end() < len(found) else found
