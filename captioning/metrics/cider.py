"""CIDEr-D as the COCO caption evaluation computes it, and the document frequencies that it needs.

Vedantam et al., "CIDEr: Consensus-based Image Description Evaluation", CVPR 2015,
https://arxiv.org/abs/1411.5726.
"""

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
    Corpus,
    Counts,
    WordNumbers,
    image_of_each,
    ngram_counts,
    numbered,
    sums,
)
from captioning.metrics.scores import Scores, Words
from captioning.untrusted import json_of, opened

SIGMA = 6.0
"""Width of the Gaussian length penalty, in words."""

MAX_BYTES = 2**30
"""Limit on a file's arrays. Those of COCO's 590,000 training captions take 40 MB."""

_FOREIGN = (
    *(OSError, EOFError, zipfile.BadZipFile, zlib.error),  # not an archive, or a damaged one
    *(AttributeError, KeyError, TypeError, ValueError),  # an archive or array of something else
    *(MemoryError, OverflowError),  # arrays that claim to be larger than any memory
)


@dataclass(frozen=True, eq=False)
class DocumentFrequencies:
    """In how many images' references each n-gram occurs.

    Attributes:
        images: the number of images.
        numbers: the number of each word.
        codes: for n = 1, 2, ..., the ascending codes of the n-grams (`captioning.metrics.ngrams`).
        counts: for n = 1, 2, ..., the number of images of each n-gram.
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

    def idf(
        self, numbers: Mapping[Any, int], codes: Sequence[NDArray[np.int64]]
    ) -> Iterator[NDArray[np.float64]]:
        """Inverse document frequencies of other captions' n-grams, for n = 1, 2, ...

        These are log(images / frequency); an n-gram that does not occur has frequency 1.

        Args:
            numbers: the number of each word of those captions.
            codes: for n = 1, 2, ..., the codes of their n-grams.
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
        """Write a NumPy archive atomically.

        Raises:
            InputError: the file cannot be written.
            ValueError: the frequencies are of word ids, not of words.
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
        """Read a file that `save` wrote.

        Args:
            path: the file.
            max_bytes: larger arrays are rejected before they are unpacked.

        Raises:
            InputError: the file is missing, unreadable or of another kind.
        """
        try:
            # NumPy itself would leave a damaged archive open.
            with opened(path) as file, np.load(file, allow_pickle=False) as archive:
                if sum(part.file_size for part in archive.zip.infolist()) > max_bytes:
                    raise ValueError("larger than any corpus needs")
                words = json_of(archive["words"].tobytes())
                loaded = cls(
                    int(archive["images"]),
                    {word: number for number, word in enumerate(words)},
                    [archive[f"codes{n}"] for n in range(1, MAX_N + 1)],
                    [archive[f"counts{n}"] for n in range(1, MAX_N + 1)],
                )
        except _FOREIGN:
            loaded = None
        if loaded is None or not loaded._is_consistent():
            raise InputError(
                f"{path}: not document frequencies; give a file that DocumentFrequencies.save wrote"
            )
        return loaded

    def _is_consistent(self) -> bool:
        """Whether the arrays fit each other; those of another program's archive may not."""
        return len(self.codes[0]) == len(self.numbers) and all(
            codes.ndim == 1
            and codes.shape == counts.shape
            and codes.dtype == counts.dtype == np.int64
            and (np.diff(codes) > 0).all()
            for codes, counts in zip(self.codes, self.counts, strict=True)
        )


def cider_scores(
    candidates: Sequence[Words],
    references: Sequence[Sequence[Words]],
    frequencies: DocumentFrequencies | None = None,
) -> Scores:
    """CIDEr-D, from 0 to 10, of a corpus and of its images.

    A caption is a TF-IDF vector over n-grams. Its score is ten times the mean, over references and
    n = 1 to 4, of the cosine similarity, with counts clipped to those of the reference and a
    Gaussian penalty on the difference in length (Vedantam et al. 2015, section 8). The corpus score
    is the mean over images. Unlike in the COCO evaluation, `<unk>` matches nothing.

    Args:
        candidates: the words of one caption per image.
        references: for each image the words of its references.
        frequencies: document frequencies; default: those of the references, as in the COCO
            evaluation.

    Raises:
        ValueError: there are no captions, the lengths differ, or an image has no reference.
    """
    corpus = Corpus.of(candidates, references)
    frequencies = frequencies or DocumentFrequencies.of(references)
    similarities = np.zeros(len(corpus.images))
    counts = list(corpus.counts())
    idfs = frequencies.idf(corpus.numbers, [found.codes for found, _ in counts])
    for (found, written), idf in zip(counts, idfs, strict=True):
        similarities += _similarities(found, written, idf, corpus)
    # The COCO evaluation takes the number of bigrams as the length of a caption.
    lengths, of_references = (np.maximum(0, lengths - 1) for lengths in corpus.lengths)
    differences = lengths[corpus.images] - of_references
    penalty = np.exp(-(differences**2) / (2 * SIGMA**2))
    summed = sums(similarities * penalty, corpus.images, corpus.count)
    return Scores.of("CIDEr", 10 / MAX_N * summed / np.bincount(corpus.images))


def _similarities(
    found: Counts, written: Counts, idf: NDArray[np.float64], corpus: Corpus
) -> NDArray[np.float64]:
    """The clipped cosine similarity of each reference with its image's caption, (references,)."""
    of_found, of_written = (side.counts * idf[side.ngrams] for side in (found, written))
    # The caption's entry for every n-gram of its references; most are 0.
    pairs = np.append(found.captions * len(idf) + found.ngrams, -1)
    wanted = corpus.images[written.captions] * len(idf) + written.ngrams
    places = np.searchsorted(pairs[:-1], wanted)
    entries = np.where(pairs[places] == wanted, np.append(of_found, 0.0)[places], 0.0)
    count = len(corpus.images)
    products = sums(np.minimum(entries, of_written) * of_written, written.captions, count)
    norms = np.sqrt(sums(of_found**2, found.captions, corpus.count))[corpus.images]
    norms *= np.sqrt(sums(of_written**2, written.captions, count))
    return np.divide(products, norms, out=np.zeros_like(products), where=norms > 0)


def _places(
    prefixes: NDArray[np.int64], last: NDArray[np.int64], codes: NDArray[np.int64], vocab_size: int
) -> NDArray[np.int64]:
    """The index of each n-gram in `codes`, -1 if it does not occur.

    Args:
        prefixes: the indices of the n-grams without their last words, -1 if unknown.
        last: the numbers of their last words, -1 if unknown.
        codes: ascending.
        vocab_size: the vocabulary size that the codes were made with.
    """
    wanted = np.where((prefixes < 0) | (last < 0), -1, prefixes * vocab_size + last)
    places = np.searchsorted(codes, wanted)
    known = places < len(codes)
    known[known] = codes[places[known]] == wanted[known]
    return np.where(known, places, -1)
