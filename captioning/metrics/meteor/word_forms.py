"""What METEOR knows of single words: stems, synonyms and which are function words."""

import re
import zipfile
from collections import defaultdict
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from captioning.errors import InputError

VOWEL_THEN_NOT = re.compile("[aeiouy][^aeiouy]")
FIRST_REGION = re.compile("gener|commun|arsen")

ENDINGS = (
    *(("s", ""), ("ses", "s"), ("xes", "x"), ("zes", "z"), ("ches", "ch"), ("shes", "sh")),
    *(("men", "man"), ("ies", "y"), ("es", "e"), ("es", ""), ("ed", "e"), ("ed", "")),
    *(("ing", "e"), ("ing", ""), ("er", ""), ("est", ""), ("er", "e"), ("est", "e")),
)
"""WordNet's endings of inflected words and of their base forms, in WordNet's order."""


class WordForms:
    """The words of METEOR's program for English.

    Args:
        jar: the program's file, an archive with WordNet's synsets, its irregular forms and the
            list of function words.

    Raises:
        InputError: the file is damaged.
    """

    def __init__(self, jar: Path) -> None:
        try:
            with zipfile.ZipFile(jar) as archive:
                synsets, exceptions, functions = (
                    archive.read(name).decode().splitlines()
                    for name in (
                        *("synonym/english.synsets", "synonym/english.exceptions"),
                        "function/english.words",
                    )
                )
        except (OSError, KeyError, ValueError, zipfile.BadZipFile):
            raise InputError(f"{jar}: damaged; install pycocoevalcap anew") from None
        self.function_words = frozenset(functions)
        self._synsets = dict(zip(synsets[::2], synsets[1::2], strict=True))
        self._irregular = defaultdict(list)
        for base, forms in zip(exceptions[::2], exceptions[1::2], strict=True):
            for form in forms.split():
                self._irregular[form].append(base)
        self.synsets = lru_cache(maxsize=None)(self._synsets_of)

    def _synsets_of(self, word: str) -> frozenset[str]:
        """The synsets of a word and of its base form, by their numbers in WordNet."""
        forms = [word, *self._base_forms(word)]
        return frozenset(n for form in forms for n in self._synsets.get(form, "").split())

    def _base_forms(self, word: str) -> list[str]:
        """The irregular ones if there are any; else the first that an ending gives."""
        if word in self._irregular:
            return self._irregular[word]
        if len(word) <= 2 or word.endswith("ss"):
            return []
        bases = (word.removesuffix(end) + base for end, base in ENDINGS if word.endswith(end))
        return [base for base in bases if base in self._synsets][:1]


@cache
def stem(word: str) -> str:
    """The stem by the Snowball stemmer for English, as METEOR's program finds it.

    NLTK keeps the e that a step has put at the end (realization, realize) where the rules delete
    it, which is undone here.
    """
    found = _stemmer().stem(word)
    if found.endswith("e") and not word.startswith(found) and _second_region(word) < len(found):
        return found[:-1]
    return found


@lru_cache(maxsize=1)
def _stemmer() -> Any:  # NLTK ships no types
    from nltk.stem.snowball import EnglishStemmer  # takes half a second

    return EnglishStemmer()


def _second_region(word: str) -> int:
    """Where the region begins in which the stemmer deletes most suffixes."""
    word = re.sub("(^|[aeiouy])y", r"\1Y", word)
    first = FIRST_REGION.match(word) or VOWEL_THEN_NOT.search(word)
    if first is None:
        return len(word)
    second = VOWEL_THEN_NOT.search(word, first.end())
    return len(word) if second is None else second.end()
