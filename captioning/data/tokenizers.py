"""Tokenizers of captions, by their names in a configuration."""

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import chain, pairwise
from typing import get_args
from unicodedata import category, normalize

from captioning.data.tokenizer_names import TokenizerName
from captioning.data.tokens import TYPED, tokenize, tokens
from captioning.errors import InputError

Tokenizer = Callable[[str], list[str]]
"""Splits a caption into words in lower case, without punctuation and white space."""

NLTK = ("treebank", "wordpunct", "tweet")

SPACED = ("ptb", *NLTK)
"""Tokenizers of scripts that write spaces between words."""

# Characters of scripts without spaces between words. East Asian scripts have no spaces beside words
# of other scripts and numbers either.
EAST_ASIAN = (
    r"\u2e80-\u2fd5\u3005-\u3007\u3021-\u312f\u31a0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    r"\uff66-\uff9f\U00020000-\U0003ffff"
)
UNSPACED = rf"{EAST_ASIAN}\u0e01-\u0eff\u1000-\u109f\u1780-\u17ff\ua9e0-\ua9fe\uaa60-\uaa7f"
WORD_CATEGORIES = ("L", "M", "N", "Sc", "Sm", "So")  # of Unicode; each word has one of them

ENGLISH_JOINTS = dict.fromkeys((" 's", " 'm", " 'd", " 're", " 've", " 'll", " n't"), "")
"""Joints of English for `pieces`: no space before an ending, as in *the man's*."""


def characters(caption: str) -> list[str]:
    """Split scripts without spaces into characters with their marks, other scripts into words."""
    word_pattern, _ = _unspaced_patterns()
    return word_pattern.findall(_plain(caption))


def pieces(
    words: Sequence[str], name: TokenizerName = "ptb", joints: Mapping[str, str] = ENGLISH_JOINTS
) -> list[str]:
    """The words of a caption, each with the space or other joint in front of it.

    Japanese and Chinese words have no space; Thai ones have one beside numbers and other scripts.

    Args:
        words: of the caption, in any spelling.
        name: of the tokenizer.
        joints: text in place of a space, for scripts with spaces: by two words with a space between
            them, or by one word with a space on the side of any other word.
    """
    parts = list(words[:1])
    if name in SPACED:
        for word, following in pairwise(word.lower() for word in words):
            joint = joints.get(f"{word} ", " ")
            joint = joints.get(f" {following}", joint)
            joint = joints.get(f"{word} {following}", joint)
            parts.append(joint + words[len(parts)])
        return parts
    _, removable_space = _unspaced_patterns()
    for word, following in pairwise(words):
        parts.append(removable_space.sub("", f"{word} {following}")[len(word) :])
    return parts


def join_words(
    words: Sequence[str], name: TokenizerName = "ptb", joints: Mapping[str, str] = ENGLISH_JOINTS
) -> str:
    """Join words to a caption, with the spaces and joints of `pieces`."""
    return "".join(pieces(words, name, joints))


def tokenizer_hint(captions: Sequence[str], name: TokenizerName) -> str | None:
    """A line that suggests other tokenizers, if the captions have no spaces between words."""
    text = "".join(captions)
    unspaced = len(re.findall(f"[{UNSPACED}]", text))
    if name not in SPACED or 2 * unspaced <= sum(map(str.isalpha, text)):
        return None
    return (
        "captions are in a script without spaces between words, so each is one word; give "
        "--tokenizer characters, japanese, chinese or thai"
    )


@cache
def _unspaced_patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Patterns of the words of `characters`, and of spaces to remove between them."""
    letters = map(chr, range(0x300, 0x10000))
    marks = "".join(letter for letter in letters if category(letter).startswith("M"))
    word_pattern = re.compile(
        rf"(?=[^\W_])[{UNSPACED}][{marks}]*|(?:(?![{UNSPACED}])[^\W_][{marks}\u200c\u200d]*)+"
    )
    removable_space = re.compile(
        rf"(?:(?<=[{UNSPACED}])|(?<=[{UNSPACED}][{marks}])) (?=[{UNSPACED}])"
        rf"|(?<=[{EAST_ASIAN}]) |(?<=[{EAST_ASIAN}][{marks}]) | (?=[{EAST_ASIAN}])"
    )
    return word_pattern, removable_space


def tokenizer_of_scores(name: TokenizerName) -> Tokenizer:
    """The tokenizer of captions and references for scores, for a vocabulary's tokenizer."""
    return tokens if name in SPACED else tokenizer(name)


@cache
def tokenizer(name: TokenizerName) -> Tokenizer:
    """The tokenizer of this name.

    Raises:
        InputError: it is unknown, or its library is not installed.
    """
    names = get_args(TokenizerName)
    if name not in names:
        raise InputError(f"tokenizer {name}: unknown; choose from {', '.join(names)}")
    if name in ("ptb", "characters"):
        return tokenize if name == "ptb" else characters
    try:
        split = _library_tokenizer(name)
    except ImportError:
        extra = {"japanese": "ja", "chinese": "zh", "thai": "th"}[name]
        raise InputError(
            f"the tokenizer {name} needs the extra {extra}; run pip install 'captioning[{extra}]'"
        ) from None

    def words(caption: str) -> list[str]:
        text = _plain(caption).encode(errors="replace").decode()  # halves of surrogate pairs
        parts = chain.from_iterable(token.split() for token in split(text))
        return [part for part in parts if _has_word_character(part)]

    return words


def _has_word_character(text: str) -> bool:
    return any(category(character).startswith(WORD_CATEGORIES) for character in text)


def _library_tokenizer(name: str) -> Callable[[str], Iterable[str]]:
    """The tokenizer of a library, which is imported only here."""
    if name == "japanese":
        from sudachipy import Dictionary, SplitMode

        dictionary = Dictionary(dict="small")
        # A tokenizer serves one thread at a time, and takes no time to make.
        return lambda text: map(str, dictionary.tokenizer(SplitMode.A).tokenize(text))
    if name == "chinese":
        from rjieba import cut

        return cut
    if name == "thai":
        os.environ.setdefault("PYTHAINLP_READ_ONLY", "1")  # else it makes a folder at home
        from pythainlp.tokenize import word_tokenize

        return word_tokenize
    from nltk import tokenize as nltk

    classes = nltk.TreebankWordTokenizer, nltk.WordPunctTokenizer, nltk.TweetTokenizer
    return dict(zip(NLTK, classes, strict=True))[name]().tokenize


def _plain(caption: str) -> str:
    """The caption in lower case, with each accented letter as one character where it can be."""
    return normalize("NFC", caption.translate(TYPED)).lower()
