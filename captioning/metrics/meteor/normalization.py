r"""The words that METEOR compares, in text whose words are parted by spaces.

METEOR cuts words further than the tokenizer of the COCO evaluation does: `t-shirt` is two words,
`'s` is an apostrophe and an s, and `u.s.` is `us`. The rules are those that its program applies
with `-norm`; they were found by what it does with each character of the basic plane and with
random text.
"""

import re
from collections.abc import Iterable

from captioning.data.vocabulary import SPECIAL, UNK

BAR = "|||"
"""What separates the parts of a line to METEOR's program, so that no caption can have it."""

UNKNOWN = "unknownword"
"""In place of <unk>, which would be taken apart: one word that no reference has."""

LETTER = (
    r"A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u017e\u0400-\u0527\u1d00-\u1d7f\ua640-\ua66e"
    r"\ua67e-\ua697"
)
PLAIN = re.compile("[a-z ]*")

DOT = "\uffff"
"""In place of full stops in a row, which stay together; no character."""

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
        # A comma stays between digits alone: 1,000.
        ("([^0-9]),([^0-9])", r"\1 , \2"),
        ("([0-9]),([^0-9])", r"\1 , \2"),
        ("([^0-9]),([0-9])", r"\1 , \2"),
        ("''", ' " '),
        # An apostrophe stays with the letters that follow, if letters go before it, too: dog 's.
        (rf"([^{LETTER}])'([^{LETTER}])", r"\1 ' \2"),
        (rf"([^{LETTER}0-9])'([{LETTER}])", r"\1 ' \2"),
        (rf"([{LETTER}])'([^{LETTER}])", r"\1 ' \2"),
        (rf"([{LETTER}])'([{LETTER}])", r"\1 '\2"),
        ("([0-9])'(s)", r"\1 '\2"),
    )
]
HAS_LETTER = re.compile(f"[{LETTER}]")
ABBREVIATIONS = frozenset({"v", "vs", "i.e", "rev", "e.g"})


def text_of_words(words: Iterable[str]) -> str:
    """The words of a reference as METEOR reads them, in one line."""
    return " ".join(" ".join(words).replace(BAR, " ").split())


def generated_text(words: Iterable[str]) -> str:
    """The words of a generated caption, likewise."""
    return text_of_words(UNKNOWN if word == SPECIAL[UNK] else word for word in words)


def normalized(text: str) -> list[str]:
    """The words of a text in lower case."""
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
    """A word, and its full stop apart where it ends a sentence."""
    before = word[:-1]
    if not before or not word.endswith("."):
        return [word]
    if "." in before and HAS_LETTER.search(before):
        return [word.replace(".", "")]  # u.s.
    if before in ABBREVIATIONS or "a" <= following[:1] <= "z":
        return [word]
    return [before, "."]
