"""METEOR's table of paraphrases: 5.3 million pairs of phrases of up to seven words.

pycocoevalcap contains it as compressed text, which takes half a minute to read. The first use saves
it as arrays in the user's cache folder.
"""

import gzip
import os
import zipfile
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from captioning.errors import reading
from captioning.files import written_whole
from captioning.progress_bar import stage

FORMAT = 1
"""The version of the arrays in the cache folder."""

LONGEST = 7
NO_WORD = 0

Phrase = tuple[int, int, int]
"""A phrase of the table in a sentence: its first word, its number of words, and its node."""


@dataclass(frozen=True)
class Paraphrases:
    """Phrases and their paraphrases as arrays.

    Phrases are paths in a prefix tree. Nodes are numbered from 1 in the order of their keys.

    Attributes:
        words: (W,), the distinct words in bytes; word number w is `words[w - 1]`.
        keys: (nodes,), ascending; the key of node n is `keys[n - 1]` = parent * (W + 1) + word,
            where the parent of a first word is 0.
        phrases: (P,), ascending, the nodes of phrases that have paraphrases.
        starts: (P + 1,), where the paraphrases of each phrase begin.
        paraphrases: (pairs,), nodes; those of one phrase in the order of METEOR's file.
    """

    words: NDArray[Any]
    keys: NDArray[np.int64]
    phrases: NDArray[np.int32]
    starts: NDArray[np.int32]
    paraphrases: NDArray[np.int32]

    @classmethod
    def load(cls, path: Path) -> "Paraphrases":
        """The table of METEOR's file, from the copy in the cache folder once there is one.

        Raises:
            InputError: a file is damaged.
        """
        copy = cached(path)
        if not copy.exists():
            with stage("converting METEOR's paraphrases, once per machine"):
                table = cls.read(path)
                with written_whole(copy) as temporary:
                    np.savez(temporary, **vars(table))
        with reading(copy, zipfile.BadZipFile, TypeError), np.load(copy) as arrays:
            return cls(**arrays)

    @classmethod
    def read(cls, path: Path) -> "Paraphrases":
        """Parse METEOR's file, in which three lines are a probability and two paraphrases."""
        phrases: dict[str, int] = {}
        pairs, rows = array("i"), array("i")
        with reading(path), gzip.open(path, "rt", encoding="utf-8") as file:
            lines = map(str.rstrip, file)
            for _, *both in zip(lines, lines, lines, strict=True):
                pairs.extend(phrases.setdefault(phrase, len(phrases)) for phrase in both)
        words: dict[str, int] = {}  # numbered from 1
        for phrase in phrases:
            numbers = [words.setdefault(word, len(words) + 1) for word in phrase.split(" ")]
            rows.extend(numbers + [NO_WORD] * (LONGEST - len(numbers)))
        columns = np.array(rows, dtype=np.int64).reshape(-1, LONGEST).T
        keys: list[NDArray[np.int64]] = []
        nodes = np.zeros(columns.shape[1], dtype=np.int64)
        count = 0
        for column in columns:
            longer = np.flatnonzero(column != NO_WORD)
            wanted = nodes[longer] * (len(words) + 1) + column[longer]
            new, places = np.unique(wanted, return_inverse=True)
            nodes[longer] = count + 1 + places.reshape(-1)
            keys.append(new)
            count += len(new)
        left, right = nodes[np.array(pairs, dtype=np.int32).reshape(-1, 2)].T
        order = np.argsort(left, kind="stable")
        starting, starts = np.unique(left[order], return_index=True)
        return cls(
            np.array([word.encode() for word in words]),
            np.concatenate(keys),
            starting.astype(np.int32),
            np.append(starts, len(left)).astype(np.int32),
            right[order].astype(np.int32),
        )

    def occurrences(self, sentences: Sequence[Sequence[str]]) -> list[list[Phrase]]:
        """The phrases of the table, and their prefixes, in each sentence."""
        numbers = {word.decode(): n for n, word in enumerate(self.words.tolist(), start=1)}
        lengths = np.fromiter(map(len, sentences), np.int64, len(sentences))
        # Each sentence ends with a word that no phrase has, so that no phrase crosses sentences.
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
        """The nodes of a phrase's paraphrases and their ranks; empty if the node is a prefix."""
        place = int(np.searchsorted(self.phrases, node))
        if place == len(self.phrases) or self.phrases[place] != node:
            return {}
        found = self.paraphrases[self.starts[place] : self.starts[place + 1]].tolist()
        return {paraphrase: number for number, paraphrase in enumerate(found)}


def cached(path: Path) -> Path:
    """The path of the arrays of a compressed file, named by the file's checksum and length."""
    with path.open("rb") as file:
        file.seek(-8, os.SEEK_END)  # gzip ends with both
        name = f"meteor-paraphrases-{file.read().hex()}-{FORMAT}.npz"
    folder = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(folder) / "captioning" / name
