"""METEOR's table of paraphrases: 5.3 million pairs of phrases of up to seven words.

pycocoevalcap brings it as compressed text, which takes half a minute to read. A copy in arrays is
left in the user's cache folder.
"""

import gzip
import os
import sys
import zipfile
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from captioning.errors import InputError
from captioning.files import written_whole
from captioning.progress_bar import stage

FORMAT = 1
"""Of the copies in the cache folder; another number makes new ones."""

LONGEST = 7
NO_WORD = 0

Phrase = tuple[int, int, int]
"""A known phrase in a sentence: its first word, how many words it has, and its number."""


@dataclass(frozen=True)
class Paraphrases:
    """Phrases with their paraphrases, as arrays.

    The phrases are paths in a tree, in which a node is the word after another node's words. Nodes
    are numbered from 1 in the order of their keys.

    Attributes:
        words: (W,) those that occur, in bytes; number w is `words[w - 1]`.
        keys: (nodes,) ascending; of node n, `keys[n - 1]` is (its parent * (W + 1) + its word),
            in which the parent of a first word is 0.
        phrases: (P,) ascending, the nodes where a phrase with paraphrases ends.
        starts: (P + 1,) where their paraphrases begin.
        paraphrases: (pairs,) nodes, those of a phrase in the order of METEOR's file.
    """

    words: NDArray[Any]
    keys: NDArray[np.int64]
    phrases: NDArray[np.int32]
    starts: NDArray[np.int32]
    paraphrases: NDArray[np.int32]

    @classmethod
    def load(cls, path: Path) -> "Paraphrases":
        """The table of METEOR's own file; from the cache folder, where a copy is left at first.

        Raises:
            InputError: the file is damaged, or the cache folder cannot be written to.
        """
        copy = cached(path)
        try:
            with copy.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                return cls(**arrays)
        except FileNotFoundError:
            pass
        except (OSError, ValueError, TypeError, EOFError, zipfile.BadZipFile):
            copy.unlink(missing_ok=True)  # damaged
        with stage("paraphrases of METEOR, the first time only"):
            table = cls.read(path)
            with written_whole(copy) as temporary:
                np.savez(temporary, **vars(table))
        return table

    @classmethod
    def read(cls, path: Path) -> "Paraphrases":
        """The table of METEOR's own file, of which three lines are a number and two paraphrases.

        Raises:
            InputError: the file is damaged.
        """
        phrases = _Numbered()
        pairs = array("i")
        try:
            with gzip.open(path, "rt", encoding="utf-8") as file:
                lines = map(str.rstrip, file)
                for _, left, right in zip(lines, lines, lines, strict=True):
                    pairs.append(phrases.number(left))
                    pairs.append(phrases.number(right))
        except (OSError, EOFError, ValueError):
            raise InputError(f"{path}: damaged; install pycocoevalcap anew") from None
        return cls.of(
            list(phrases.words),
            np.array(phrases.rows, dtype=np.int64).reshape(-1, LONGEST),
            np.array(pairs, dtype=np.int32).reshape(-1, 2),
        )

    @classmethod
    def of(
        cls, words: Sequence[str], phrases: NDArray[np.int64], pairs: NDArray[np.int32]
    ) -> "Paraphrases":
        """A table of pairs.

        Args:
            words: those that occur.
            phrases: (phrases, LONGEST) the numbers of their words, counted from 1, and then 0.
            pairs: (pairs, 2) rows of a phrase and its paraphrase.
        """
        keys: list[NDArray[np.int64]] = []
        nodes = np.zeros(len(phrases), dtype=np.int64)
        count = 0
        for column in phrases.T:
            longer = np.flatnonzero(column != NO_WORD)
            wanted = nodes[longer] * (len(words) + 1) + column[longer]
            new, places = np.unique(wanted, return_inverse=True)
            nodes[longer] = count + 1 + places.reshape(-1)
            keys.append(new)
            count += len(new)
        left, right = nodes[pairs[:, 0]], nodes[pairs[:, 1]]
        order = np.argsort(left, kind="stable")
        starting, starts = np.unique(left[order], return_index=True)
        return cls(
            np.array([word.encode() for word in words]),
            np.concatenate(keys),
            starting.astype(np.int32),
            np.append(starts, len(pairs)).astype(np.int32),
            right[order].astype(np.int32),
        )

    def occurrences(self, sentences: Sequence[Sequence[str]]) -> list[list[Phrase]]:
        """The known phrases, and known beginnings of phrases, in sentences."""
        numbers = {word.decode(): n for n, word in enumerate(self.words.tolist(), start=1)}
        lengths = np.fromiter(map(len, sentences), np.int64, len(sentences))
        # A word that no phrase has ends each sentence, so that no phrase goes beyond.
        flat: NDArray[np.int64] = np.array(
            [n for words in sentences for n in (*(numbers.get(w, NO_WORD) for w in words), NO_WORD)]
        )
        ends = np.cumsum(lengths + 1)
        starts: NDArray[np.int64] = np.flatnonzero(flat != NO_WORD)
        nodes: NDArray[np.int64] = np.zeros(len(starts), dtype=np.int64)
        found: list[list[Phrase]] = [[] for _ in sentences]
        for length in range(1, LONGEST + 1):
            known = flat[starts + length - 1] != NO_WORD
            starts, nodes = starts[known], nodes[known]
            wanted = nodes * (len(numbers) + 1) + flat[starts + length - 1]
            different, inverse = np.unique(wanted, return_inverse=True)
            places = np.asarray(np.searchsorted(self.keys, different))
            hits = self.keys[np.minimum(places, len(self.keys) - 1)] == different
            known = hits[inverse]
            starts, nodes = starts[known], places[inverse][known] + 1
            number = np.searchsorted(ends, starts, side="right")
            first = starts - (ends[number] - lengths[number] - 1)
            for sentence, start, node in zip(
                number.tolist(), first.tolist(), nodes.tolist(), strict=True
            ):
                found[sentence].append((start, length, node))
        return found

    def of_phrase(self, node: int) -> dict[int, int]:
        """The nodes of a phrase's paraphrases, and at what place the table has each.

        There are none if it is no phrase.
        """
        place = int(np.searchsorted(self.phrases, node))
        if place == len(self.phrases) or self.phrases[place] != node:
            return {}
        found = self.paraphrases[self.starts[place] : self.starts[place + 1]].tolist()
        return {paraphrase: number for number, paraphrase in enumerate(found)}


class _Numbered:
    """Phrases, numbered as they come.

    Attributes:
        words: the numbers of their words, counted from 1.
        rows: for each phrase LONGEST of these, of which the last are 0.
    """

    def __init__(self) -> None:
        self.words: dict[str, int] = {}
        self.rows = array("i")
        self._numbers: dict[str, int] = {}

    def number(self, phrase: str) -> int:
        """The number of a phrase, counted from 0.

        Raises:
            ValueError: it has more words than LONGEST.
        """
        number = self._numbers.setdefault(phrase, len(self._numbers))
        if LONGEST * number == len(self.rows):
            words = phrase.split(" ")
            if len(words) > LONGEST:
                raise ValueError(phrase)
            self.rows.extend(self.words.setdefault(word, len(self.words) + 1) for word in words)
            self.rows.extend([NO_WORD] * (LONGEST - len(words)))
        return number


def cached(path: Path) -> Path:
    """Where the copy of a compressed file lies, named by the file's checksum and length."""
    with path.open("rb") as file:
        file.seek(-8, os.SEEK_END)  # gzip ends with both
        name = f"meteor-paraphrases-{file.read().hex()}-{FORMAT}.npz"
    return cache_folder() / name


def cache_folder() -> Path:
    """The user's folder for what can be made anew: ``XDG_CACHE_HOME``, or what the system has."""
    if given := os.environ.get("XDG_CACHE_HOME"):
        return Path(given) / "captioning"
    if sys.platform == "darwin":
        return Path.home() / "Library/Caches/captioning"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home())) / "captioning"
    return Path.home() / ".cache/captioning"


@lru_cache(maxsize=1)
def loaded(path: Path) -> Paraphrases:
    """The table of a file, once for each process."""
    return Paraphrases.load(path)
