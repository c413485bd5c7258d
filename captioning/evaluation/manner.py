"""The manner of captions, apart from their content.

The manner is what the captions of a collection have in common, whatever the photo shows, and a
model's captions of the same photos do not: "street photo of" at the beginning, or no articles.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

MIN_DIFFERENCE = 0.2
"""Minimum difference between the shares of captions that have a word, for a word of a manner."""

MIN_SEPARATION = 0.7
"""Minimum separation of a distinct manner."""


@dataclass(frozen=True)
class MannerWord:
    """A word that captions of one manner have more or less often than those of another.

    Attributes:
        word: the word.
        presence: what its presence in a caption says for the manner, in nats.
        absence: what its absence says.
    """

    word: str
    presence: float
    absence: float


@dataclass(frozen=True)
class Manner:
    """The words by which captions differ from a model's captions of the same photos.

    Attributes:
        words: those that the shares of captions with them differ by at least `MIN_DIFFERENCE`.
        separation: share of the captions that `has` accepts, minus that of the model's captions.
    """

    words: tuple[MannerWord, ...]
    separation: float = 0.0

    @property
    def is_distinct(self) -> bool:
        """Whether the words tell most of the captions from the model's."""
        return self.separation >= MIN_SEPARATION

    @classmethod
    def between(
        cls, captions: Sequence[Sequence[str]], model_captions: Sequence[Sequence[str]]
    ) -> "Manner":
        """Compare captions, given as their words, with a model's captions of the same photos."""
        counts, model_counts = _caption_counts(captions), _caption_counts(model_captions)
        manner_words = []
        for word in sorted({*counts, *model_counts}):
            difference = counts[word] / len(captions) - model_counts[word] / len(model_captions)
            if abs(difference) < MIN_DIFFERENCE:
                continue
            # Half a caption is added to both counts: no word is impossible.
            share = (counts[word] + 0.5) / (len(captions) + 1)
            model_share = (model_counts[word] + 0.5) / (len(model_captions) + 1)
            presence = math.log(share / model_share)
            absence = math.log((1 - share) / (1 - model_share))
            manner_words.append(MannerWord(word, presence, absence))
        manner = cls(tuple(manner_words))
        shares = [
            sum(map(manner.has, collection)) / len(collection)
            for collection in (captions, model_captions)
        ]
        return cls(manner.words, separation=shares[0] - shares[1])

    def most_telling(self, count: int = 6) -> list[str]:
        """The words whose presence says most, for or against the manner."""
        telling = sorted(self.words, key=lambda word: -abs(word.presence - word.absence))
        return [word.word for word in telling[:count]]

    def has(self, caption: Sequence[str]) -> bool:
        """Whether a caption is likelier in this manner than in the model's (naive Bayes)."""
        return (
            sum(word.presence if word.word in caption else word.absence for word in self.words) > 0
        )

    def content(self, caption: Sequence[str]) -> list[str]:
        """The words of a caption that are not the manner's."""
        manner_words = {word.word for word in self.words}
        return [word for word in caption if word not in manner_words]


def _caption_counts(captions: Sequence[Sequence[str]]) -> Counter[str]:
    """For each word, the number of captions that have it."""
    return Counter(word for caption in captions for word in set(caption))
