"""The vocabulary, which maps words to ids and back."""

from collections import Counter
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from itertools import takewhile
from typing import get_args

from captioning.data.tokenizers import TokenizerName, joined, tokenizer
from captioning.data.tokens import BRACKETS
from captioning.errors import InputError, shown

PAD, BOS, EOS, UNK = range(4)
SPECIAL = ("<pad>", "<bos>", "<eos>", "<unk>")


class Vocabulary:
    """The words that a model knows, each with an id; the first four ids are special tokens.

    Args:
        words: the other words in the order of their ids, from 4.
        tokenizer: splits captions into these words.
    """

    def __init__(self, words: Sequence[str], tokenizer: TokenizerName = "ptb") -> None:
        if tokenizer not in get_args(TokenizerName):
            raise InputError(f"unknown tokenizer {shown(tokenizer)}")
        if isinstance(words, str) or not all(isinstance(word, str) for word in words):
            raise InputError(f"a vocabulary is a list of words, not {shown(words)}")
        if len(set(words)) < len(words):
            raise InputError("a word of the vocabulary occurs twice")
        self.words = tuple(words)
        self.tokenizer: TokenizerName = tokenizer
        self._tokens = (*SPECIAL, *self.words)
        self._ids = {word: index for index, word in enumerate(self.words, start=len(SPECIAL))}

    @classmethod
    def build(
        cls,
        captions: Iterable[str],
        min_count: int = 1,
        name: TokenizerName = "ptb",
        known: Sequence[str] = (),
    ) -> "Vocabulary":
        """The known words, then those that occur `min_count` times, the most frequent first.

        Brackets are left out: the evaluation counts them as words, but a caption should not have
        them.
        """
        cut = tokenizer(name)
        counts = Counter(word for caption in captions for word in cut(caption))
        others = {*BRACKETS, *SPECIAL, *known}
        new = [w for w, count in counts.items() if count >= min_count and w not in others]
        return cls((*known, *sorted(new, key=lambda word: (-counts[word], word))), name)

    def __len__(self) -> int:
        return len(self._tokens)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Vocabulary):
            return False
        return (self.words, self.tokenizer) == (other.words, other.tokenizer)

    def __hash__(self) -> int:
        return hash(self.words)

    def encode(self, caption: str) -> list[int]:
        """The ids of a caption's words between BOS and EOS; unknown words become UNK."""
        return self.ids(tokenizer(self.tokenizer)(caption))

    def ids(self, words: Iterable[str]) -> list[int]:
        """The ids of words between BOS and EOS; unknown words become UNK."""
        return [BOS, *(self._ids.get(word, UNK) for word in words), EOS]

    def known_words(self, text: str) -> list[str]:
        """The words of a text that has no others.

        Raises:
            InputError: a word is unknown, or there is none.
        """
        words = tokenizer(self.tokenizer)(text)
        if unknown := [word for word in words if word not in self._ids]:
            near = [close for word in unknown for close in get_close_matches(word, self.words, 2)]
            remedy = f"did you mean {' or '.join(near)}?" if near else "use other words"
            raise InputError(
                f"{shown(text)}: the model does not know {', '.join(map(shown, unknown))}; {remedy}"
            )
        if not words:
            raise InputError(f"{shown(text)}: no words; give a caption")
        return words

    def decode(self, ids: Iterable[int]) -> tuple[str, ...]:
        """The words of `ids` up to the first EOS, without PAD and BOS."""
        kept = takewhile(lambda index: index != EOS, ids)
        return tuple(self._tokens[index] for index in kept if index not in (PAD, BOS))

    def text(self, ids: Iterable[int]) -> str:
        """The words of `ids` as one line, as the tokenizer writes them."""
        return joined(self.decode(ids), self.tokenizer)
