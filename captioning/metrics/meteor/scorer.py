"""METEOR of captions with several references."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from captioning.metrics.java import program
from captioning.metrics.meteor.alignment import align
from captioning.metrics.meteor.matching import Matcher
from captioning.metrics.meteor.normalization import generated_text, normalized, text_of_words
from captioning.metrics.meteor.statistics import NUMBERS, counts, meteor
from captioning.metrics.scores import Scores, check_pairs

NAME = "METEOR"


class Meteor:
    """Scores captions by METEOR, as the COCO evaluation does, without Java.

    Raises:
        InputError: pycocoevalcap is not installed, which brings the synonyms and paraphrases.
    """

    def __init__(self) -> None:
        jar = program(NAME, "meteor/meteor-1.5.jar")
        self._matcher = Matcher(jar, program(NAME, "meteor/data/paraphrase-en.gz"))

    def __call__(
        self, candidates: Sequence[Sequence[str]], references: Sequence[Sequence[Sequence[str]]]
    ) -> "MeteorScores":
        """METEOR of captions: of each, that with the reference that gives it most.

        Args:
            candidates: the words of one caption per image.
            references: for each image the words of its references.

        Raises:
            ValueError: there are no captions, the two differ in length, or an image has no
                reference.
        """
        check_pairs(candidates, references)
        captions = list(map(generated_text, candidates))
        written = [list(map(text_of_words, several)) for several in references]
        texts = list(dict.fromkeys([*captions, *(text for each in written for text in each)]))
        sentences = dict(
            zip(texts, self._matcher.sentences(list(map(normalized, texts))), strict=True)
        )
        rows = []
        for caption, several in zip(captions, written, strict=True):
            found = sentences[caption]
            for text in several:
                reference = sentences[text]
                matches = self._matcher.matches(found, reference)
                alignment = align(matches, len(reference.words), len(found.words))
                rows.append(counts(found, reference, alignment))
        statistics = np.array(rows, dtype=np.float64).reshape(-1, NUMBERS)
        scores = meteor(statistics)
        ends = list(accumulate(map(len, written)))
        best = [
            end - len(several) + int(np.argmax(scores[end - len(several) : end]))
            for end, several in zip(ends, written, strict=True)
        ]
        return MeteorScores.of_statistics(statistics[best])


@dataclass(frozen=True)
class MeteorScores(Scores):
    """METEOR of captions, whose score of a corpus is no mean over images.

    Attributes:
        statistics: (images, numbers), the counts of every caption.
    """

    statistics: NDArray[np.float64]

    @classmethod
    def of_statistics(cls, statistics: NDArray[np.float64]) -> "MeteorScores":
        """The scores of captions and, from the sum of their counts, of the corpus."""
        [corpus] = meteor(statistics.sum(axis=0, keepdims=True))
        return cls({NAME: float(corpus)}, {NAME: meteor(statistics)}, statistics)

    def resampled(self, counts: NDArray[np.integer]) -> dict[str, NDArray[np.float64]]:
        """METEOR from the summed counts of corpora that are drawn from the images.

        Args:
            counts: (R, images), how often each of R corpora has each image.

        Returns:
            The scores of the corpora, (R,).
        """
        return {NAME: meteor(counts @ self.statistics)}
