"""Words: how a caption becomes tokens, and tokens become ids."""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

PAD, BOS, EOS, UNK = range(4)
SPECIAL = ("<pad>", "<bos>", "<eos>", "<unk>")

# The tokens that the COCO caption evaluation drops (its PTBTokenizer), and the brackets that
# Treebank leaves as they are where the Stanford tokenizer writes -LRB- and so on.
PUNCTUATION = frozenset("'' ' `` ` . ? ! , : - -- ... ; ( ) [ ] { }".split())  # noqa: SIM905


# What phones and word processors write for the marks that Treebank knows.
TYPOGRAPHIC = str.maketrans(
    {"‘": "'", "’": "'", "“": '"', "”": '"', "–": " -- ", "—": " -- ", "…": " ... "}  # noqa: RUF001
)


@cache
def _treebank() -> Any:
    from nltk.tokenize.treebank import TreebankWordTokenizer  # late: it takes a quarter second

    return TreebankWordTokenizer()


def tokenize(caption: str) -> list[str]:
    """The words of a caption: Penn Treebank tokens in lower case, without punctuation.

    Training and evaluation use this one function, so that a word is the same to both.
    """
    line = " ".join(caption.lower().translate(TYPOGRAPHIC).split())
    return [token for token in _treebank().tokenize(line) if token not in PUNCTUATION]


class Vocabulary:
    """The words that a model knows, each with an id.

    The first four ids are the special tokens PAD, BOS, EOS and UNK; `words` excludes them.

    Args:
        words: the words in the order of their ids, the first one getting id 4.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self.words = tuple(words)
        self._ids = {word: index for index, word in enumerate(self.words, start=len(SPECIAL))}

    @classmethod
    def build(cls, captions: Iterable[str], min_count: int = 1) -> "Vocabulary":
        """The words that occur at least `min_count` times, the most frequent first."""
        counts = Counter(word for caption in captions for word in tokenize(caption))
        kept = [word for word, count in counts.items() if count >= min_count]
        return cls(sorted(kept, key=lambda word: (-counts[word], word)))

    def __len__(self) -> int:
        return len(SPECIAL) + len(self.words)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and self.words == other.words

    def __hash__(self) -> int:
        return hash(self.words)

    def encode(self, caption: str) -> list[int]:
        """The ids of a caption's words between BOS and EOS; unknown words become UNK."""
        return [BOS, *(self._ids.get(word, UNK) for word in tokenize(caption)), EOS]

    def decode(self, ids: Iterable[int]) -> tuple[str, ...]:
        """The words of `ids` up to the first EOS, without PAD and BOS."""
        words = []
        for index in ids:
            if index == EOS:
                break
            if index not in (PAD, BOS):
                words.append(SPECIAL[UNK] if index == UNK else self.words[index - len(SPECIAL)])
        return tuple(words)
