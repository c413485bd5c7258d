"""The tokenizers that a configuration can choose for a model's vocabulary.

Scores always use `captioning.data.tokens.tokenize`, whatever tokenizer the model uses.
"""

import unicodedata
from collections.abc import Callable
from functools import cache
from typing import Literal

from captioning.data.tokens import TYPED, tokenize

Tokenizer = Callable[[str], list[str]]
"""Gives the words of a caption, in lower case, without punctuation and white space."""

TokenizerName = Literal["ptb", "treebank", "wordpunct", "tweet"]
"""Their names in a configuration; all but the first are NLTK's.

- ptb: the tokenizer of the COCO caption evaluation: `do n't`, `x-ray`.
- treebank: the Penn Treebank's own rules, simpler and without COCO's surprises.
- wordpunct: runs of letters and digits: `don t`, `x ray`; the smallest vocabulary.
- tweet: words as people type them: `don't`, `#sunset`, emoji and smileys that have letters.
"""

KEPT = ("L", "M", "N", "Sc", "Sm", "So")
"""A token needs a character of these Unicode categories, not just punctuation or accents."""


@cache
def tokenizer(name: TokenizerName) -> Tokenizer:
    """The tokenizer of this name; NLTK is imported only for NLTK's tokenizers."""
    if name == "ptb":
        return tokenize
    cut = _of_nltk(name)

    def words(caption: str) -> list[str]:
        tokens = [part for token in cut(caption.translate(TYPED).lower()) for part in token.split()]
        return [token for token in tokens if any(map(_is_kept, token))]

    return words


def _of_nltk(name: TokenizerName) -> Tokenizer:
    from nltk import tokenize as nltk

    kinds = {
        "treebank": nltk.TreebankWordTokenizer,
        "wordpunct": nltk.WordPunctTokenizer,
        "tweet": nltk.TweetTokenizer,
    }
    cut: Tokenizer = kinds[name]().tokenize
    return cut


def _is_kept(character: str) -> bool:
    return unicodedata.category(character).startswith(KEPT)
