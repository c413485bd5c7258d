"""CIDEr-D as the COCO caption evaluation computes it, its document frequencies, and a reward.

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
from scipy.sparse import csr_array

from captioning.errors import reading
from captioning.files import written_whole
from captioning.metrics.bleu import bleu_scores
from captioning.metrics.ngrams import MAX_N, corpus_of, ngram_counts
from captioning.metrics.scores import Scores, Words

SIGMA = 6.0
"""Width of the Gaussian length penalty, in words."""


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
        """The frequencies of a corpus with at least one image."""
        found = ngram_counts(list(chain.from_iterable(references)))
        images = np.repeat(np.arange(len(references)), list(map(len, references)))
        owners = csr_array((np.ones(len(images)), (images, np.arange(len(images)))))
        by_image = [owners @ counts for counts in found.counts]
        counts = [np.bincount(each.indices, minlength=each.shape[1]) for each in by_image]
        return cls(len(references), found.numbers, found.codes, counts)

    def idf(
        self, numbers: Mapping[Any, int], codes: Sequence[NDArray[np.int64]]
    ) -> Iterator[NDArray[np.float64]]:
        """Inverse document frequencies of a corpus's n-grams, from its `numbers` and `codes`.

        These are log(images / frequency) for n = 1, 2, ...; an n-gram that does not occur has
        frequency 1.
        """
        words = np.array([self.numbers.get(word, -1) for word in numbers], dtype=np.int64)
        places = words  # in `self.codes`, -1 if the n-gram does not occur
        for n, (wanted, own, counts) in enumerate(zip(codes, self.codes, self.counts, strict=True)):
            if n > 0:
                prefixes, last = np.divmod(wanted, len(words))
                prefixes, last = places[prefixes], words[last]
                keys = np.where(
                    (prefixes < 0) | (last < 0), -1, prefixes * len(self.numbers) + last
                )
                places = np.searchsorted(own, keys)
                places = np.where(np.append(own, -2)[places] == keys, places, -1)
            yield np.log(float(self.images)) - np.log(np.append(counts, 1)[places])

    def save(self, path: str | Path) -> None:
        """Write a NumPy archive; the frequencies must be of words, not of their ids."""
        words = np.frombuffer(json.dumps(list(self.numbers)).encode(), dtype=np.uint8)
        arrays: dict[str, Any] = {"images": np.array(self.images), "words": words}
        for n, (codes, counts) in enumerate(zip(self.codes, self.counts, strict=True), start=1):
            arrays |= {f"codes{n}": codes, f"counts{n}": counts}
        with written_whole(path) as temporary, temporary.open("wb") as file:
            np.savez_compressed(file, **arrays)

    @classmethod
    def load(cls, path: str | Path) -> "DocumentFrequencies":
        """Read a file that `save` wrote.

        Raises:
            InputError: the file is missing, damaged or of another kind.
        """
        foreign = (zipfile.BadZipFile, zlib.error, AttributeError, KeyError, TypeError)
        with reading(path, *foreign), Path(path).open("rb") as file:
            archive = np.load(file, allow_pickle=False)
            words = json.loads(archive["words"].tobytes())
            codes, counts = (
                [archive[f"{name}{n}"] for n in range(1, MAX_N + 1)] for name in ("codes", "counts")
            )
            numbers = {word: number for number, word in enumerate(words)}
            return cls(int(archive["images"]), numbers, codes, counts)


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
        candidates: one caption per image.
        references: of each image.
        frequencies: default: those of the references, as in the COCO evaluation.
    """
    corpus, count = corpus_of(candidates, references), len(candidates)
    frequencies, images = frequencies or DocumentFrequencies.of(references), corpus.images
    similarities = np.zeros(len(images))
    idfs = frequencies.idf(corpus.ngrams.numbers, corpus.ngrams.codes)
    for counts, idf in zip(corpus.ngrams.counts, idfs, strict=True):
        values, everywhere = counts.astype(np.float64), np.ones(len(idf))
        values.data *= idf[values.indices]
        norms = np.sqrt(values.power(2) @ everywhere)
        own, written = values[:count][images], values[count:]
        products = own.minimum(written).multiply(written) @ everywhere
        norms = norms[:count][images] * norms[count:]
        similarities += np.divide(products, norms, out=np.zeros(len(images)), where=norms > 0)
    # The COCO evaluation takes the number of bigrams as the length of a caption.
    lengths, longer = (np.maximum(0, each - 1) for each in (corpus.lengths, corpus.written))
    penalty = np.exp(-((lengths[images] - longer) ** 2) / (2 * SIGMA**2))
    summed = np.bincount(images, similarities * penalty)
    return Scores.of("CIDEr", 10 / MAX_N * summed / np.bincount(images))


def rewards(
    samples: Sequence[Sequence[Words]],
    references: Sequence[Sequence[Words]],
    frequencies: DocumentFrequencies,
    bleu: float = 0.0,
) -> NDArray[np.float64]:
    """CIDEr-D plus `bleu` times sentence BLEU-4 of each image's N samples, (B, N).

    Captions may be words or ids, but of the same kind as in the frequencies. If samples and
    references contain the end token, ending a caption is rewarded too.
    """
    candidates = list(chain.from_iterable(samples))
    written = [several for its, several in zip(samples, references, strict=True) for _ in its]
    found = cider_scores(candidates, written, frequencies).images["CIDEr"]
    if bleu:
        found = found + bleu * bleu_scores(candidates, written).images["BLEU-4"]
    return found.reshape(len(samples), -1)
