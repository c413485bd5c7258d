"""CIDEr-D as the COCO caption evaluation computes it, document frequencies, and a reward.

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

LENGTH_SIGMA = 6.0
"""Width of the Gaussian length penalty, in words."""


@dataclass(frozen=True, eq=False)
class DocumentFrequencies:
    """Number of images whose references contain each n-gram.

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
        """Count the document frequencies of a corpus with at least one image."""
        ngrams = ngram_counts(list(chain.from_iterable(references)))
        images = np.repeat(np.arange(len(references)), list(map(len, references)))
        owners = csr_array((np.ones(len(images)), (images, np.arange(len(images)))))
        document_counts = []
        for counts in ngrams.counts:
            image_counts = owners @ counts
            document_counts.append(
                np.bincount(image_counts.indices, minlength=image_counts.shape[1])
            )
        return cls(len(references), ngrams.numbers, ngrams.codes, document_counts)

    def idf(
        self, numbers: Mapping[Any, int], codes: Sequence[NDArray[np.int64]]
    ) -> Iterator[NDArray[np.float64]]:
        """Inverse document frequencies of a corpus's n-grams, given its `numbers` and `codes`.

        These are log(images / frequency) for n = 1, 2, ...; an n-gram that does not occur has
        frequency 1.
        """
        words = np.array([self.numbers.get(word, -1) for word in numbers], dtype=np.int64)
        indices = words  # of the corpus's n-grams in `self.codes`, -1 for those without frequency
        tables = zip(codes, self.codes, self.counts, strict=True)
        for n, (corpus_codes, document_codes, counts) in enumerate(tables):
            if n > 0:
                prefixes, last_words = np.divmod(corpus_codes, len(words))
                prefixes, last_words = indices[prefixes], words[last_words]
                is_unknown = (prefixes < 0) | (last_words < 0)
                keys = np.where(is_unknown, -1, prefixes * len(self.numbers) + last_words)
                indices = np.searchsorted(document_codes, keys)
                indices = np.where(np.append(document_codes, -2)[indices] == keys, indices, -1)
            yield np.log(float(self.images)) - np.log(np.append(counts, 1)[indices])

    def save(self, path: str | Path) -> None:
        """Write a NumPy archive; the frequencies must be those of words, not of their ids."""
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
        archive_errors = (zipfile.BadZipFile, zlib.error, AttributeError, KeyError, TypeError)
        with reading(path, *archive_errors), Path(path).open("rb") as file:
            archive = np.load(file, allow_pickle=False)
            words = json.loads(archive["words"].tobytes())
            codes = [archive[f"codes{n}"] for n in range(1, MAX_N + 1)]
            counts = [archive[f"counts{n}"] for n in range(1, MAX_N + 1)]
            numbers = {word: number for number, word in enumerate(words)}
            return cls(int(archive["images"]), numbers, codes, counts)


def cider_scores(
    candidates: Sequence[Words],
    references: Sequence[Sequence[Words]],
    frequencies: DocumentFrequencies | None = None,
) -> Scores:
    """Compute CIDEr-D, from 0 to 10, of a corpus and of its images.

    A caption is a TF-IDF vector over n-grams. Its score is ten times the mean, over references and
    n = 1 to 4, of the cosine similarity, with counts clipped to those of the reference and a
    Gaussian penalty on the difference in length (Vedantam et al. 2015, section 8). The corpus score
    is the mean over images. Unlike in the COCO evaluation, `<unk>` matches nothing.

    Args:
        candidates: one caption per image.
        references: of each image.
        frequencies: document frequencies; by default those of the references, as in the COCO
            evaluation.
    """
    corpus, count = corpus_of(candidates, references), len(candidates)
    frequencies, images = frequencies or DocumentFrequencies.of(references), corpus.images
    similarities = np.zeros(len(images))
    idfs = frequencies.idf(corpus.ngrams.numbers, corpus.ngrams.codes)
    for counts, idf in zip(corpus.ngrams.counts, idfs, strict=True):
        vectors, ones = counts.astype(np.float64), np.ones(len(idf))
        vectors.data *= idf[vectors.indices]
        norms = np.sqrt(vectors.power(2) @ ones)
        candidate_vectors, reference_vectors = vectors[:count][images], vectors[count:]
        clipped_vectors = candidate_vectors.minimum(reference_vectors)
        products = clipped_vectors.multiply(reference_vectors) @ ones
        norms = norms[:count][images] * norms[count:]
        similarities += np.divide(products, norms, out=np.zeros(len(images)), where=norms > 0)
    # The COCO evaluation takes the number of bigrams as the length of a caption.
    lengths = np.maximum(0, corpus.lengths - 1)
    reference_lengths = np.maximum(0, corpus.reference_lengths - 1)
    penalty = np.exp(-((lengths[images] - reference_lengths) ** 2) / (2 * LENGTH_SIGMA**2))
    sums = np.bincount(images, similarities * penalty)
    return Scores.of("CIDEr", 10 / MAX_N * sums / np.bincount(images))


def rewards(
    samples: Sequence[Sequence[Words]],
    references: Sequence[Sequence[Words]],
    frequencies: DocumentFrequencies,
    bleu: float = 0.0,
) -> NDArray[np.float64]:
    """Compute CIDEr-D plus `bleu` times sentence BLEU-4 of each image's N samples, (B, N).

    Captions are words or ids, as in the document frequencies. If samples and references contain the
    end token, ending a caption is rewarded too.
    """
    candidates = list(chain.from_iterable(samples))
    sample_references: list[Sequence[Words]] = []
    for image_samples, image_references in zip(samples, references, strict=True):
        sample_references += [image_references] * len(image_samples)
    scores = cider_scores(candidates, sample_references, frequencies).images["CIDEr"]
    if bleu:
        scores = scores + bleu * bleu_scores(candidates, sample_references).images["BLEU-4"]
    return scores.reshape(len(samples), -1)
