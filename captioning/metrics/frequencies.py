"""In how many images n-grams occur, by which CIDEr tells rare ones from common ones."""

import json
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from captioning.errors import InputError
from captioning.files import written_whole
from captioning.metrics.ngrams import (
    MAX_N,
    WordNumbers,
    image_of_each,
    ngram_counts,
    numbered,
)
from captioning.metrics.scores import Words
from captioning.untrusted import json_of, opened

_FOREIGN = (
    *(OSError, EOFError, zipfile.BadZipFile, zlib.error),  # no archive, or a damaged one
    *(AttributeError, KeyError, TypeError, ValueError),  # an archive or array of something else
    *(MemoryError, OverflowError),  # arrays that claim to be larger than any memory
)


MAX_BYTES = 2**30
"""Of the arrays. Those of COCO's 590,000 training captions take 40 MB."""


@dataclass(frozen=True, eq=False)
class DocumentFrequencies:
    """In how many images' references each n-gram occurs.

    Attributes:
        images: how many there are.
        numbers: of the words.
        codes: for n = 1, 2, ..., those of the n-grams, ascending; see `captioning.metrics.ngrams`.
        counts: for n = 1, 2, ..., in how many images' references each n-gram occurs.
    """

    images: int
    numbers: Mapping[Any, int]
    codes: Sequence[NDArray[np.int64]]
    counts: Sequence[NDArray[np.int64]]

    @classmethod
    def of(cls, references: Sequence[Sequence[Words]]) -> "DocumentFrequencies":
        """The frequencies of a corpus.

        Args:
            references: for each image the words of its references.

        Raises:
            ValueError: there are no images.
        """
        if not references:
            raise ValueError("there are no references to count n-grams in; give at least one image")
        numbers = WordNumbers()
        captions = numbered(list(chain.from_iterable(references)), numbers)
        images = image_of_each(references)
        codes, counts = [], []
        for found in ngram_counts(captions, len(numbers)):
            ngrams = max(len(found.codes), 1)
            pairs = np.unique(images[found.captions] * ngrams + found.ngrams)
            codes.append(found.codes)
            counts.append(np.bincount(pairs % ngrams, minlength=len(found.codes)))
        return cls(len(references), dict(numbers), codes, counts)

    def rarities(
        self, numbers: Mapping[Any, int], codes: Sequence[NDArray[np.int64]]
    ) -> Iterator[NDArray[np.float64]]:
        """How rare n-grams of other captions are, for n = 1, 2, ...

        This is log(images / frequency), where an n-gram that does not occur counts as one that
        occurs once.

        Args:
            numbers: of the words of those captions.
            codes: for n = 1, 2, ..., of their n-grams.
        """
        words: NDArray[np.int64] = np.empty(len(numbers), dtype=np.int64)
        for word, number in numbers.items():
            words[number] = self.numbers.get(word, -1)
        places = words.copy()
        for n, (wanted, own, counts) in enumerate(zip(codes, self.codes, self.counts, strict=True)):
            if n > 0:
                prefixes, last = np.divmod(wanted, len(words))
                places = _places(places[prefixes], words[last], own, len(self.numbers))
            frequencies = np.ones(len(places))
            known = places >= 0
            frequencies[known] = counts[places[known]]
            yield np.log(float(self.images)) - np.log(frequencies)

    def save(self, path: str | Path) -> None:
        """Write a NumPy archive, whole or not at all.

        Raises:
            InputError: the file cannot be written.
            ValueError: the frequencies are not those of words but of ids.
        """
        words = list(self.numbers)
        if not all(isinstance(word, str) for word in words):
            raise ValueError("only frequencies of words can be saved, not those of their ids")
        arrays: dict[str, Any] = {
            "images": np.array(self.images),
            "words": np.frombuffer(json.dumps(words).encode(), dtype=np.uint8),
        }
        for n, (codes, counts) in enumerate(zip(self.codes, self.counts, strict=True), start=1):
            arrays |= {f"codes{n}": codes, f"counts{n}": counts}
        with written_whole(path) as temporary, temporary.open("wb") as file:
            np.savez_compressed(file, **arrays)

    @classmethod
    def load(cls, path: str | Path, max_bytes: int = MAX_BYTES) -> "DocumentFrequencies":
        """What `save` wrote.

        Args:
            path: the file.
            max_bytes: of its arrays; a larger one is refused before it is unpacked.

        Raises:
            InputError: the file is missing, unreadable or of another kind.
        """
        try:
            # NumPy itself would leave a damaged archive open.
            with opened(path) as file, np.load(file, allow_pickle=False) as archive:
                if sum(part.file_size for part in archive.zip.infolist()) > max_bytes:
                    raise ValueError("unpacks to more than any corpus needs")
                words = json_of(archive["words"].tobytes())
                loaded = cls(
                    int(archive["images"]),
                    {word: number for number, word in enumerate(words)},
                    [archive[f"codes{n}"] for n in range(1, MAX_N + 1)],
                    [archive[f"counts{n}"] for n in range(1, MAX_N + 1)],
                )
        except _FOREIGN:
            loaded = None
        if loaded is None or not loaded._sound():
            raise InputError(
                f"{path}: no document frequencies; give a file that DocumentFrequencies.save wrote"
            )
        return loaded

    def _sound(self) -> bool:
        """Whether the arrays fit each other, as those of another program's archive would not."""
        return len(self.codes[0]) == len(self.numbers) and all(
            codes.ndim == 1
            and codes.shape == counts.shape
            and codes.dtype == counts.dtype == np.int64
            and (np.diff(codes) > 0).all()
            for codes, counts in zip(self.codes, self.counts, strict=True)
        )


def _places(
    prefixes: NDArray[np.int64], last: NDArray[np.int64], codes: NDArray[np.int64], vocab_size: int
) -> NDArray[np.int64]:
    """Where n-grams are among `codes`, -1 for those that are not there.

    Args:
        prefixes: where they are without their last word, -1 for nowhere.
        last: the numbers of their last words, -1 for none.
        codes: ascending.
        vocab_size: that the codes were made with.
    """
    wanted = np.where((prefixes < 0) | (last < 0), -1, prefixes * vocab_size + last)
    places = np.searchsorted(codes, wanted)
    known = places < len(codes)
    known[known] = codes[places[known]] == wanted[known]
    return np.where(known, places, -1)
