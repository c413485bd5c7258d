"""The vocabulary, which maps words to ids and back."""

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise, takewhile, zip_longest
from typing import get_args

from captioning.data.tokenizers import ENGLISH_JOINTS, SPACED, TokenizerName, joined, tokenizer
from captioning.data.tokens import BRACKETS, TYPED, is_english
from captioning.errors import InputError, shown

PAD, BOS, EOS, UNK = range(4)
SPECIAL = ("<pad>", "<bos>", "<eos>", "<unk>")

REPEATED = 0.05
"""Share of its occurrences in people's captions by which a word may be said again in a caption."""

ENDS = frozenset(".!?:\n")
"""Characters between two words of which the second begins a sentence."""

MOST_BETWEEN = 100
"""The most characters between two words that are looked at, so that time is linear."""

JOINT = re.compile("['\u200c\u200d-]?")
"""What joins two words of a tokenizer that are one: nothing, an apostrophe or half a space, say."""


@dataclass(unsafe_hash=True)
class Vocabulary:
    """The words that a model knows, each with an id; the first four ids are special tokens.

    Args:
        words: the other words in the order of their ids, from 4.
        tokenizer: splits captions into these words.
        repeatable: the words that people say again in a caption (`repeatable_words`); None if
            unknown.
        spellings: how people write words inside sentences (`common_spellings`), such as ``TV`` for
            ``tv``; other words are written as they are.
        ranks: the place by frequency, from 1, of words that were added behind rarer ones; other
            words stand at theirs.
        joints: what people write between words in place of a space (`common_joints`); see `pieces`.
    """

    words: Sequence[str]
    tokenizer: TokenizerName = "ptb"
    repeatable: Collection[str] | None = field(default=None, compare=False)
    spellings: Mapping[str, str] = field(default_factory=dict, compare=False)
    ranks: Mapping[str, int] = field(default_factory=dict, compare=False)
    joints: Mapping[str, str] = field(default_factory=lambda: ENGLISH_JOINTS, compare=False)

    def __post_init__(self) -> None:
        if self.tokenizer not in get_args(TokenizerName):
            raise InputError(f"unknown tokenizer {shown(self.tokenizer)}")
        if isinstance(self.words, str) or not all(isinstance(word, str) for word in self.words):
            raise InputError(f"a vocabulary is a list of words, not {shown(self.words)}")
        if len(set(self.words)) < len(self.words):
            raise InputError("a word of the vocabulary occurs twice")
        for word, spelling in self.spellings.items():
            if not isinstance(spelling, str) or spelling.lower() != word:
                raise InputError(f"{shown(spelling)} is not a spelling of {shown(word)}")
        if not all(isinstance(text, str) for pair in self.joints.items() for text in pair):
            raise InputError(f"{shown(self.joints)} are not joints of words")
        self.words = tuple(self.words)
        if self.repeatable is not None:
            self.repeatable = frozenset(self.repeatable)
        self.ranks = {word: int(rank) for word, rank in self.ranks.items()}
        if min(self.ranks.values(), default=1) < 1:
            raise InputError("ranks of words begin with 1")
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

        The rank of a word behind known ones is its rank among the words of the captions; words that
        occur equally often share the last of their ranks.

        Brackets are left out: the evaluation counts them as words, but a caption should not have
        them.
        """
        captions = list(captions)
        written = list(map(tokenizer(name), captions))
        counts = Counter(word for words in written for word in words)
        others = {*BRACKETS, *SPECIAL, *known}
        new = [w for w, count in counts.items() if count >= min_count and w not in others]
        words = (*known, *sorted(new, key=lambda word: (-counts[word], word)))
        repeatable = repeatable_words(written).intersection(words)
        spellings = common_spellings(captions, written, words)
        rising = sorted(counts.values())
        ranks = {w: len(rising) - bisect_left(rising, counts[w]) for w in new if known}
        is_learnt = name in SPACED and not is_english(word for its in written for word in its)
        joints = common_joints(captions, written, words) if is_learnt else ENGLISH_JOINTS
        return cls(words, name, repeatable, spellings, ranks, joints)

    def __len__(self) -> int:
        return len(self._tokens)

    @cached_property
    def once(self) -> list[int]:
        """The id of each word to say once in a caption; PAD for special tokens and other words."""
        may_repeat = {*SPECIAL, *(self.words if self.repeatable is None else self.repeatable)}
        return [PAD if word in may_repeat else n for n, word in enumerate(self._tokens)]

    @cached_property
    def places(self) -> list[int]:
        """The place by frequency of the word of each id, from 1; 0 for special tokens."""
        places = (self.ranks.get(word, n) for n, word in enumerate(self.words, start=1))
        return [*[0] * len(SPECIAL), *places]

    def encode(self, caption: str) -> list[int]:
        """The ids of a caption's words between BOS and EOS; unknown words become UNK."""
        return self.ids(tokenizer(self.tokenizer)(caption))

    def ids(self, words: Iterable[str]) -> list[int]:
        """The ids of words between BOS and EOS; unknown words become UNK."""
        return [BOS, *(self._ids.get(word, UNK) for word in words), EOS]

    def known_words(self, text: str, substitutes: Sequence[Sequence[str]] = ()) -> list[str]:
        """The words of a text.

        Args:
            text: a caption, or a part of one.
            substitutes: what the model would say in place of each unknown word, for the message.

        Raises:
            InputError: a word is unknown, or there is none.
        """
        words = tokenizer(self.tokenizer)(text)
        if unknown := [word for word in words if word not in self._ids]:
            pairs = zip_longest(map(self._akin, unknown), substitutes, fillvalue=())
            close = filter(None, (" or ".join(near[:2] or others) for near, others in pairs))
            remedy = f"did you mean {told}?" if (told := ", ".join(close)) else "use other words"
            raise InputError(
                f"{shown(text)}: the model does not know {', '.join(map(shown, unknown))}; {remedy}"
            )
        if not words:
            raise InputError(f"{shown(text)}: no words; give a caption")
        return words

    def _akin(self, word: str) -> list[str]:
        """The words with the same stem in English, or with two neighbouring letters swapped.

        Of words that are merely spelt alike, half mean something else: brook and book.
        """
        stem, words = self._stems
        swapped = {f"{word[:n]}{word[n : n + 2][::-1]}{word[n + 2 :]}" for n in range(len(word))}
        return [each for each in self.words if each in swapped or words[each] == stem(word)]

    @cached_property
    def _stems(self) -> tuple[Callable[[str], str], dict[str, str]]:
        from nltk.stem.snowball import EnglishStemmer  # takes half a second

        stem = EnglishStemmer().stem
        return stem, {word: stem(word) for word in self.words}

    def decode(self, ids: Iterable[int]) -> tuple[str, ...]:
        """The words of `ids` up to the first EOS, without PAD and BOS."""
        kept = takewhile(lambda index: index != EOS, ids)
        return tuple(self._tokens[index] for index in kept if index not in (PAD, BOS))

    def spelt(self, ids: Iterable[int]) -> tuple[str, ...]:
        """The words of `ids` as people write them inside sentences."""
        return tuple(self.spellings.get(word, word) for word in self.decode(ids))

    def text(self, ids: Iterable[int]) -> str:
        """The words of `ids` as one line, as the tokenizer writes them."""
        return joined(self.decode(ids), self.tokenizer, self.joints)


def repeatable_words(captions: Sequence[Sequence[str]]) -> frozenset[str]:
    """The words that people say again in a caption, such as `a`, `in` and `tennis`: see `REPEATED`.

    That needs no list for each language. A word that is repeated once in all captions is none, and
    a plural is another word than its singular.
    """
    counts = Counter(word for words in captions for word in words)
    firsts = Counter(word for words in captions for word in set(words))
    again = counts - firsts
    return frozenset(w for w, n in again.items() if n > 1 and n >= REPEATED * counts[w])


def common_spellings(
    captions: Sequence[str], tokens: Sequence[Sequence[str]], words: Iterable[str]
) -> dict[str, str]:
    """The commonest spelling of each of the words that occurs inside sentences of the captions."""
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for text, places in _places(captions, tokens):
        for (_, _, end), (word, start, stop) in pairwise(places):
            if ENDS.isdisjoint(text[end:start]):
                counts[word][text[start:stop]] += 1
    # Of equally common spellings the one in lower case, which sorts last.
    return {w: max((n, s) for s, n in counts[w].items())[1] for w in words if w in counts}


def common_joints(
    captions: Sequence[str], tokens: Sequence[Sequence[str]], words: Iterable[str]
) -> dict[str, str]:
    """What people write between these words in place of a space, by the keys of `pieces`.

    Two words are joined as in most of the captions. A word that is always joined, by the same
    characters to two words or more, is joined to others too.
    """
    known = frozenset(words)
    counts: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for text, places in _places(captions, tokens):
        for (one, _, end), (two, start, _) in pairwise(places):
            if one in known and two in known:
                between = text[end:start]
                counts[one, two][between if JOINT.fullmatch(between) else " "] += 1
    seams = {pair: between.most_common(1)[0][0] for pair, between in counts.items()}
    before_space = {one for (one, _), seam in seams.items() if seam == " "}
    by_word: defaultdict[str, list[str]] = defaultdict(list)
    for (one, two), seam in seams.items():
        by_word[f"{one} "].append(seam)
        if one in before_space:  # others join the second word themselves
            by_word[f" {two}"].append(seam)
    always = {
        key: several[0]
        for key, several in by_word.items()
        if len(several) > 1 and set(several) == {several[0]} != {" "}
    }
    pairs = {
        f"{one} {two}": seam
        for (one, two), seam in seams.items()
        if seam != always.get(f" {two}", always.get(f"{one} ", " "))
    }
    return always | pairs


def _places(
    captions: Sequence[str], tokens: Sequence[Sequence[str]]
) -> Iterator[tuple[str, list[tuple[str, int, int]]]]:
    """Each caption with its words, and where each of them begins and ends there.

    A word that is not written so, such as a bracket, is left out, and so are captions whose length
    depends on case, by a letter such as the Turkish capital i.
    """
    for caption, its in zip(captions, tokens, strict=True):
        text = caption.translate(TYPED)
        lower = text.lower()
        places: list[tuple[str, int, int]] = []
        for word in its if len(lower) == len(text) else ():
            end = places[-1][2] if places else 0
            start = lower.find(word, end, end + MOST_BETWEEN + len(word))
            if start >= 0:
                places.append((word, start, start + len(word)))
        yield text, places
