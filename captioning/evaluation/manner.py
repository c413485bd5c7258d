"""The manner of captions, apart from their content.

The manner is what the captions of a collection have in common, whatever the photo shows, and a
model's captions of the same photos do not: "street photo of" at the beginning, or no articles.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean

MIN_GAIN = 0.1
"""Minimum gain in the share of captions that have a word, for a word that is the manner's."""

GAIN_RATIO, ALWAYS = 4.0, 0.98
"""Such a word is so many times as frequent as in the model's captions, or in so many captions."""

LOSS_RATIO = 25.0
"""The model has a word that the manner leaves out so many times as often."""

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
        words: those that captions have and the model's hardly ever have, or nearly the reverse. A
            word that the model says rather often, such as "standing", is not one.
        separation: share of the captions that `has` accepts, minus that of the model's captions.
        length_ratio: how many times as long the model's captions would be in this manner.
    """

    words: tuple[MannerWord, ...]
    separation: float = 0.0
    length_ratio: float = 1.0

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
            # Half a caption is added to both counts: no word is impossible.
            share = (counts[word] + 0.5) / (len(captions) + 1)
            model_share = (model_counts[word] + 0.5) / (len(model_captions) + 1)
            is_gained = share - model_share >= MIN_GAIN and (
                share >= GAIN_RATIO * model_share or counts[word] >= ALWAYS * len(captions)
            )
            is_lost = model_share >= LOSS_RATIO * share
            if is_gained or is_lost:
                presence = math.log(share / model_share)
                absence = math.log((1 - share) / (1 - model_share))
                manner_words.append(MannerWord(word, presence, absence))
        manner = cls(tuple(manner_words))
        shares = [
            sum(map(manner.has, collection)) / len(collection)
            for collection in (captions, model_captions)
        ]
        model_length = mean(map(len, model_captions))
        length = mean(len(manner.content(caption)) for caption in model_captions)
        length += mean(len(caption) - len(manner.content(caption)) for caption in captions)
        return cls(manner.words, shares[0] - shares[1], length / max(model_length, 1))

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
