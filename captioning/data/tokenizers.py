"""The tokenizers that a configuration may name for the words that a model learns.

Scores always compare the words of `captioning.data.tokens.tokenize`, whatever a model learns.
"""

import unicodedata
from collections.abc import Callable
from functools import cache
from typing import Literal

from captioning.data.tokens import TYPED, tokenize

Tokenizer = Callable[[str], list[str]]
"""The words of a caption, in lower case and without punctuation; none holds a white space."""

TokenizerName = Literal["ptb", "treebank", "wordpunct", "tweet"]
"""What a configuration calls them; all but the first are NLTK's.

- ptb: what the COCO caption evaluation cuts by: `do n't`, `x-ray`.
- treebank: the Penn Treebank's own rules, simpler and without COCO's surprises.
- wordpunct: letters and digits between all else: `don t`, `x ray`; the fewest different words.
- tweet: words as people type them: `don't`, `#sunset`, emoji and smileys that have letters.
"""

KEPT = ("L", "M", "N", "Sc", "Sm", "So")
"""Categories of Unicode of which a token must have a character: no punctuation, accents alone."""


@cache
def tokenizer(name: TokenizerName) -> Tokenizer:
    """The tokenizer of this name; NLTK is imported only for one of its own."""
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
