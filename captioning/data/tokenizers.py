"""The tokenizers that a configuration may choose for the vocabulary of a model."""

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import pairwise
from operator import add
from typing import Literal
from unicodedata import category, normalize

from captioning.data.tokens import TYPED, tokenize, tokens
from captioning.errors import InputError

Tokenizer = Callable[[str], list[str]]
"""Gives the words of a caption, in lower case, without punctuation and white space."""

TokenizerName = Literal[
    "ptb", "treebank", "wordpunct", "tweet", "characters", "japanese", "chinese", "thai"
]
"""Their names in a configuration.

- ptb: the tokenizer of the COCO caption evaluation: `do n't`, `x-ray`.
- treebank, wordpunct, tweet: NLTK's.
- characters: each character of Chinese, Japanese, Thai, Lao, Burmese and Khmer with its vowel
  signs, written without spaces, and the words of other scripts.
- japanese: the short units (mode A) of Sudachi's small dictionary; extra `ja`.
- chinese: the words of jieba with its default settings, by jieba-rs; extra `zh`.
- thai: the words of PyThaiNLP's newmm; extra `th`.

With the last four, scores are of these words, and comparable only with scores by the same tokenizer
and version of its library.
"""

NLTK = ("treebank", "wordpunct", "tweet")

SPACED = ("ptb", *NLTK)
"""Tokenizers of scripts that write spaces between words."""

# Characters of scripts without spaces between words. The first ones have none beside words of
# other scripts and numbers either.
EAST_ASIAN = (
    r"\u2e80-\u2fd5\u3005-\u3007\u3021-\u312f\u31a0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    r"\uff66-\uff9f\U00020000-\U0003ffff"
)
UNSPACED = rf"{EAST_ASIAN}\u0e01-\u0eff\u1000-\u109f\u1780-\u17ff\ua9e0-\ua9fe\uaa60-\uaa7f"
KEPT = ("L", "M", "N", "Sc", "Sm", "So")  # Unicode categories; a token needs a character of one

ENGLISH_JOINTS = dict.fromkeys((" 's", " 'm", " 'd", " 're", " 've", " 'll", " n't"), "")
"""Joints (see `pieces`) of English: no space before the endings of words, as in the man's."""


def characters(caption: str) -> list[str]:
    """The characters of scripts without spaces, with their marks, and words of other scripts."""
    found, _ = _unspaced()
    return found.findall(_plain(caption))


def pieces(
    words: Sequence[str], name: TokenizerName = "ptb", joints: Mapping[str, str] = ENGLISH_JOINTS
) -> list[str]:
    """The words of a caption, each behind the space, or what else people write, before it.

    Japanese and Chinese words have no space; Thai ones have one beside numbers and other scripts.

    Args:
        words: of the caption, in any spelling.
        name: of the tokenizer.
        joints: what is written in place of a space, for tokenizers that cut at spaces: by two words
            with a space between, or by one with a space on the side of any other word.
    """
    if name in SPACED:
        lower = [word.lower() for word in words]
        seams = (
            joints.get(f"{one} {two}", joints.get(f" {two}", joints.get(f"{one} ", " ")))
            for one, two in pairwise(lower)
        )
        return [*words[:1], *map(add, seams, words[1:])]
    _, needless = _unspaced()
    spaced = (needless.sub("", f"{one} {two}")[len(one) :] for one, two in pairwise(words))
    return [*words[:1], *spaced]


def joined(
    words: Sequence[str], name: TokenizerName = "ptb", joints: Mapping[str, str] = ENGLISH_JOINTS
) -> str:
    """A caption of these words as one line, joined as by `pieces`."""
    return "".join(pieces(words, name, joints))


def tokenizer_hint(captions: Sequence[str], name: TokenizerName) -> str | None:
    """A line that names other tokenizers, if these captions lack the spaces of this one."""
    text = "".join(captions)
    unspaced = len(re.findall(f"[{UNSPACED}]", text))
    if name not in SPACED or 2 * unspaced <= sum(map(str.isalpha, text)):
        return None
    return (
        "captions are in a script without spaces between words, so each is one word; give "
        "--tokenizer characters, japanese, chinese or thai"
    )


@cache
def _unspaced() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """What finds the words of `characters`, and the spaces that are not written between them."""
    every = map(chr, range(0x300, 0x10000))
    marks = "".join(c for c in every if category(c).startswith("M"))
    return (
        re.compile(
            rf"(?=[^\W_])[{UNSPACED}][{marks}]*|(?:(?![{UNSPACED}])[^\W_][{marks}\u200c\u200d]*)+"
        ),
        re.compile(
            rf"(?:(?<=[{UNSPACED}])|(?<=[{UNSPACED}][{marks}])) (?=[{UNSPACED}])"
            rf"|(?<=[{EAST_ASIAN}]) |(?<=[{EAST_ASIAN}][{marks}]) | (?=[{EAST_ASIAN}])"
        ),
    )


def tokenizer_of_scores(name: TokenizerName) -> Tokenizer:
    """What splits captions and references for scores, given the tokenizer of the vocabulary."""
    return tokens if name in SPACED else tokenizer(name)


@cache
def tokenizer(name: TokenizerName) -> Tokenizer:
    """The tokenizer of this name.

    Raises:
        InputError: its library is not installed.
    """
    if name in ("ptb", "characters"):
        return tokenize if name == "ptb" else characters
    try:
        cut = _cut_by_library(name)
    except ImportError:
        extra = {"japanese": "ja", "chinese": "zh", "thai": "th"}[name]
        raise InputError(
            f"the tokenizer {name} needs the extra {extra}; run pip install 'captioning[{extra}]'"
        ) from None

    def words(caption: str) -> list[str]:
        text = _plain(caption).encode(errors="replace").decode()  # halves of surrogate pairs
        parts = [part for token in cut(text) for part in token.split()]
        return [part for part in parts if any(category(c).startswith(KEPT) for c in part)]

    return words


def _cut_by_library(name: str) -> Callable[[str], Iterable[str]]:
    """What splits text by the tokenizer's library, which is imported only here."""
    if name == "japanese":
        from sudachipy import Dictionary, SplitMode

        small = Dictionary(dict="small")
        # A tokenizer serves one thread at a time, and takes no time to make.
        return lambda text: map(str, small.tokenizer(SplitMode.A).tokenize(text))
    if name == "chinese":
        from rjieba import cut

        return cut
    if name == "thai":
        os.environ.setdefault("PYTHAINLP_READ_ONLY", "1")  # else it makes a folder at home
        from pythainlp.tokenize import word_tokenize

        return word_tokenize
    from nltk import tokenize as nltk

    kinds = nltk.TreebankWordTokenizer, nltk.WordPunctTokenizer, nltk.TweetTokenizer
    return dict(zip(NLTK, kinds, strict=True))[name]().tokenize


def _plain(caption: str) -> str:
    """The caption in lower case, with each accented letter as one character where it can be."""
    return normalize("NFC", caption.translate(TYPED)).lower()
