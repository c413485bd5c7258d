"""The vocabulary, which maps words to ids and back."""

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, pairwise, takewhile
from typing import get_args

from captioning.data.tokenizer_names import TokenizerName
from captioning.data.tokenizers import ENGLISH_JOINTS, SPACED, join_words, tokenizer
from captioning.data.tokens import BRACKETS, FUNCTION_WORDS, TYPED, is_english
from captioning.errors import InputError, format_value

PAD, BOS, EOS, UNK = range(4)
SPECIAL = ("<pad>", "<bos>", "<eos>", "<unk>")

REPEATED = 0.05
"""A word may be repeated in a caption if this share of its occurrences are repetitions."""

ENDS = frozenset(".!?:\n")
"""Characters that end a sentence."""

MAX_DISTANCE = 100
"""Maximum number of characters between two words, so that time is linear."""

JOINT = re.compile("['\u200c\u200d-]?")
"""Text between two tokens of one word: nothing, an apostrophe, a hyphen or a zero-width joiner."""


WordSpan = tuple[str, int, int]
"""A word, and where it starts and stops in a caption."""


@dataclass(unsafe_hash=True)
class Vocabulary:
    """The words that a model knows, each with an id; the first four ids are special tokens.

    Args:
        words: the other words in the order of their ids, from 4.
        tokenizer: splits captions into these words.
        repeatable: words that people repeat in a caption (`repeatable_words`); None if unknown.
        spellings: how people write words inside sentences (`common_spellings`), such as ``TV`` for
            ``tv``; other words are written as they are.
        ranks: the rank by frequency, from 1, of words that were added behind rarer ones; the rank
            of any other word is its position among `words`.
        joints: text between words in place of a space (`common_joints`); see `pieces`.
        immediate_repeats: words that people say twice in a row (`immediate_repeats`); None if
            unknown.
    """

    words: Sequence[str]
    tokenizer: TokenizerName = "ptb"
    repeatable: Collection[str] | None = field(default=None, compare=False)
    spellings: Mapping[str, str] = field(default_factory=dict, compare=False)
    ranks: Mapping[str, int] = field(default_factory=dict, compare=False)
    joints: Mapping[str, str] = field(default_factory=lambda: ENGLISH_JOINTS, compare=False)
    immediate_repeats: Collection[str] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if self.tokenizer not in get_args(TokenizerName):
            raise InputError(f"unknown tokenizer {format_value(self.tokenizer)}")
        if isinstance(self.words, str) or not all(isinstance(word, str) for word in self.words):
            raise InputError(f"a vocabulary is a list of words, not {format_value(self.words)}")
        if len(set(self.words)) < len(self.words):
            raise InputError("a word of the vocabulary occurs twice")
        for word, spelling in self.spellings.items():
            if not isinstance(spelling, str) or spelling.lower() != word:
                raise InputError(
                    f"{format_value(spelling)} is not a spelling of {format_value(word)}"
                )
        if not all(isinstance(text, str) for pair in self.joints.items() for text in pair):
            raise InputError(f"{format_value(self.joints)} are not joints of words")
        self.words = tuple(self.words)
        if self.repeatable is not None:
            self.repeatable = frozenset(self.repeatable)
        if self.immediate_repeats is not None:
            self.immediate_repeats = frozenset(self.immediate_repeats)
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
        *,
        name: TokenizerName = "ptb",
        first_words: Sequence[str] = (),
    ) -> "Vocabulary":
        """Build the vocabulary of captions: `first_words`, then the words by falling frequency.

        Words that occur less than `min_count` times are left out, unless they are among
        `first_words`. The rank of a word behind these is its rank among the words of the captions;
        words that occur equally often share the last of their ranks.

        Brackets are left out: the evaluation counts them as words, but a caption should not have
        them.
        """
        captions = list(captions)
        tokens = list(map(tokenizer(name), captions))
        counts = Counter(chain.from_iterable(tokens))
        excluded = {*BRACKETS, *SPECIAL, *first_words}
        new_words = [
            word for word, count in counts.items() if count >= min_count and word not in excluded
        ]
        words = (*first_words, *sorted(new_words, key=lambda word: (-counts[word], word)))
        ranks = {}
        if first_words:
            rising_counts = sorted(counts.values())
            for word in new_words:
                ranks[word] = len(rising_counts) - bisect_left(rising_counts, counts[word])
        learns_joints = name in SPACED and not is_english(chain.from_iterable(tokens))
        return cls(
            words,
            name,
            repeatable=repeatable_words(tokens).intersection(words),
            spellings=common_spellings(captions, tokens, words),
            ranks=ranks,
            joints=common_joints(captions, tokens, words) if learns_joints else ENGLISH_JOINTS,
            immediate_repeats=immediate_repeats(tokens).intersection(words),
        )

    def __len__(self) -> int:
        return len(self._tokens)

    @cached_property
    def unrepeatable_ids(self) -> list[int]:
        """Each token's id, if its word may occur only once in a caption; PAD for other tokens."""
        return self._ids_except(self.repeatable)

    @cached_property
    def nonadjacent_ids(self) -> list[int]:
        """Each token's id, if its word may not follow itself; PAD for other tokens."""
        return self._ids_except(self.immediate_repeats)

    @cached_property
    def content_ids(self) -> list[int]:
        """Each token's id, if its word is not one of `FUNCTION_WORDS`; PAD for other tokens."""
        return self._ids_except([word for word in self.words if word.lower() in FUNCTION_WORDS])

    def _ids_except(self, words: Collection[str] | None) -> list[int]:
        """Each token's id; PAD for special tokens and these words, or for all if unknown."""
        exceptions = {*SPECIAL, *(self.words if words is None else words)}
        return [PAD if token in exceptions else index for index, token in enumerate(self._tokens)]

    @cached_property
    def frequency_ranks(self) -> list[int]:
        """The rank by frequency of each id's word, from 1; 0 for special tokens."""
        ranks = (self.ranks.get(word, rank) for rank, word in enumerate(self.words, start=1))
        return [*[0] * len(SPECIAL), *ranks]

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
            substitutes: the model's words in place of each unknown word, for the message.

        Raises:
            InputError: a word is unknown, or there is none.
        """
        words = tokenizer(self.tokenizer)(text)
        if unknown_words := [word for word in words if word not in self._ids]:
            suggestions = []
            for number, word in enumerate(unknown_words):
                alternatives = substitutes[number] if number < len(substitutes) else ()
                if words_to_use := self._similar_words(word)[:2] or alternatives:
                    suggestions.append(" or ".join(words_to_use))
            remedy = f"did you mean {', '.join(suggestions)}?" if suggestions else "use other words"
            names = ", ".join(map(format_value, unknown_words))
            raise InputError(f"{format_value(text)}: the model does not know {names}; {remedy}")
        if not words:
            raise InputError(f"{format_value(text)}: no words; give a caption")
        return words

    def _similar_words(self, unknown_word: str) -> list[str]:
        """The words with the same stem in English, or with two neighbouring letters swapped.

        Similar spelling is not enough: half of such words mean something else, as book and brook.
        """
        stem, stems = self._stems
        swaps = set()
        for index in range(len(unknown_word)):
            letters = unknown_word[index : index + 2]
            swaps.add(unknown_word[:index] + letters[::-1] + unknown_word[index + 2 :])
        return [word for word in self.words if word in swaps or stems[word] == stem(unknown_word)]

    @cached_property
    def _stems(self) -> tuple[Callable[[str], str], dict[str, str]]:
        from nltk.stem.snowball import EnglishStemmer  # takes half a second

        stem = EnglishStemmer().stem
        return stem, {word: stem(word) for word in self.words}

    def decode(self, ids: Iterable[int]) -> tuple[str, ...]:
        """The words of `ids` up to the first EOS, without PAD and BOS."""
        caption_ids = takewhile(lambda index: index != EOS, ids)
        return tuple(self._tokens[index] for index in caption_ids if index not in (PAD, BOS))

    def spelt(self, ids: Iterable[int]) -> tuple[str, ...]:
        """The words of `ids` as people write them inside sentences."""
        return tuple(self.spellings.get(word, word) for word in self.decode(ids))

    def text(self, ids: Iterable[int]) -> str:
        """The words of `ids` as one line, as the tokenizer writes them."""
        return join_words(self.decode(ids), self.tokenizer, self.joints)


def repeatable_words(captions: Sequence[Sequence[str]]) -> frozenset[str]:
    """The words that people repeat in a caption, such as `a`, `in` and `tennis`: see `REPEATED`.

    This works in any language. A word with a single repetition in all captions is left out, and a
    plural is another word than its singular.
    """
    counts = Counter(chain.from_iterable(captions))
    captions_with_word = Counter(word for words in captions for word in set(words))
    repetitions = counts - captions_with_word
    return frozenset(
        word
        for word, count in repetitions.items()
        if count > 1 and count >= REPEATED * counts[word]
    )


def immediate_repeats(captions: Sequence[Sequence[str]]) -> frozenset[str]:
    """The words that a caption says twice in a row, such as `very` in "a very very old house"."""
    pairs = chain.from_iterable(map(pairwise, captions))
    return frozenset(word for word, next_word in pairs if word == next_word)


def common_spellings(
    captions: Sequence[str], tokens: Sequence[Sequence[str]], words: Iterable[str]
) -> dict[str, str]:
    """The most common spelling of each word, where it does not begin a sentence."""
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for text, spans in _located_words(captions, tokens):
        for (_, _, previous_stop), (word, start, stop) in pairwise(spans):
            if ENDS.isdisjoint(text[previous_stop:start]):
                counts[word][text[start:stop]] += 1
    spellings = {}
    for word in words:
        if word in counts:
            # Of equally common spellings the one in lower case, which sorts last.
            _, spellings[word] = max((count, text) for text, count in counts[word].items())
    return spellings


def common_joints(
    captions: Sequence[str], tokens: Sequence[Sequence[str]], words: Iterable[str]
) -> dict[str, str]:
    """What people write between these words in place of a space, by the keys of `pieces`.

    Two words are joined as in most of the captions. A word that is always joined, by the same
    characters to two words or more, is joined to others too.
    """
    vocabulary = frozenset(words)
    counts: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for text, spans in _located_words(captions, tokens):
        for (word, _, stop), (following_word, start, _) in pairwise(spans):
            if word in vocabulary and following_word in vocabulary:
                between = text[stop:start]
                joint = between if JOINT.fullmatch(between) else " "
                counts[word, following_word][joint] += 1
    pair_joints = {pair: joints.most_common(1)[0][0] for pair, joints in counts.items()}
    before_space = {word for (word, _), joint in pair_joints.items() if joint == " "}
    joints_by_key: defaultdict[str, list[str]] = defaultdict(list)
    for (word, following_word), joint in pair_joints.items():
        joints_by_key[f"{word} "].append(joint)
        if word in before_space:  # other words join the following word themselves
            joints_by_key[f" {following_word}"].append(joint)
    word_joints = {}
    for key, joints in joints_by_key.items():
        if len(joints) > 1 and set(joints) == {joints[0]} != {" "}:
            word_joints[key] = joints[0]
    exceptions = {}
    for (word, following_word), joint in pair_joints.items():
        default = word_joints.get(f"{word} ", " ")
        if joint != word_joints.get(f" {following_word}", default):
            exceptions[f"{word} {following_word}"] = joint
    return word_joints | exceptions


def _located_words(
    captions: Sequence[str], tokens: Sequence[Sequence[str]]
) -> Iterator[tuple[str, list[WordSpan]]]:
    """Each caption with the spans of its words.

    A token that is spelt differently in the caption, such as a bracket, has no span. Captions whose
    length depends on case, by a letter such as the Turkish capital i, have none at all.
    """
    for caption, words in zip(captions, tokens, strict=True):
        text = caption.translate(TYPED)
        lower = text.lower()
        spans: list[WordSpan] = []
        for word in words if len(lower) == len(text) else ():
            _, _, stop = spans[-1] if spans else ("", 0, 0)
            start = lower.find(word, stop, stop + MAX_DISTANCE + len(word))
            if start >= 0:
                spans.append((word, start, start + len(word)))
        yield text, spans
