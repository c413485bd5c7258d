"""The manner of captions, apart from their content.

The manner is what the captions of a collection have in common, whatever the photo shows, and a
model's captions of the same photos do not: "street photo of" at the beginning, or no articles.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import TypeVar

from captioning.data.tokens import FUNCTION_WORDS

MIN_GAIN, GAIN_ERRORS = 0.1, 3.5
"""Minimum gain in the share of captions that have a pair of words, for a pair of the manner, as a
share and in standard errors."""

CONNECTED_GAIN, CONNECTED_ERRORS = 0.05, 1.5
"""The same for a pair that ends where a pair of the manner begins, such as "food photo" before
"photo of"."""

GAIN_RATIO, ALWAYS = 4.0, 0.98
"""Such a pair is so many times as frequent as in the model's captions, or in so many captions."""

LOSS_RATIO, FUNCTION_LOSS_RATIO = 25.0, 10.0
"""A word that the manner lacks is so many times as frequent in the model's captions; a function
word so many times, since no photo is the reason for leaving out its articles."""

NEARLY = 0.8
"""Gains of this share of the highest one count as high."""

MIN_SEPARATION = 0.7
"""Minimum separation of a distinct manner."""

BEGINNING = ""
"""The first word of the pair that begins a caption."""

Pair = tuple[str, str]
"""A word, or `BEGINNING`, and the word after it."""

Feature = TypeVar("Feature", str, Pair)


@dataclass(frozen=True)
class Manner:
    """How captions differ from a model's captions of the same photos.

    Attributes:
        pairs: words that follow each other in captions, but hardly ever in the model's, such as
            "photo of". A pair that the model has rather often is not one.
        lacked: words that the model often has and the captions hardly ever have.
        log_odds: what the presence of each pair, then of each word, in a caption says for this
            manner, in nats, and what its absence says.
        separation: share of the captions that `has` accepts, minus that of the model's captions.
        length_ratio: how many times as long the model's captions would be in this manner.
    """

    pairs: tuple[Pair, ...] = ()
    lacked: tuple[str, ...] = ()
    log_odds: tuple[tuple[float, float], ...] = ()
    separation: float = 0.0
    length_ratio: float = 1.0

    @classmethod
    def between(
        cls, captions: Sequence[Sequence[str]], model_captions: Sequence[Sequence[str]]
    ) -> "Manner":
        """Compare captions, given as their words, with a model's captions of the same photos."""
        shares, model_shares = _shares(captions), _shares(model_captions)
        lacked = [
            word
            for word, model_share in sorted(model_shares.items())
            if model_share
            >= shares[word] * (FUNCTION_LOSS_RATIO if word in FUNCTION_WORDS else LOSS_RATIO)
        ]
        log_odds = [_log_odds(shares[word], model_shares[word]) for word in lacked]
        without = cls(lacked=tuple(lacked))
        pairs, pair_odds = _gained_pairs(
            [without.content(caption) for caption in captions],
            _shares([pairs_of(without.content(caption)) for caption in model_captions]),
        )
        manner = cls(tuple(pairs), tuple(lacked), (*pair_odds, *log_odds))
        accepted_shares = [
            fmean(map(manner.has, collection)) for collection in (captions, model_captions)
        ]
        length = fmean(len(manner.content(caption)) for caption in model_captions)
        length += fmean(len(caption) - len(manner.content(caption)) for caption in captions)
        return cls(
            manner.pairs,
            manner.lacked,
            manner.log_odds,
            separation=accepted_shares[0] - accepted_shares[1],
            length_ratio=length / max(fmean(map(len, model_captions)), 1.0),
        )

    @property
    def is_distinct(self) -> bool:
        """Whether it tells most of the captions from the model's."""
        return self.separation >= MIN_SEPARATION

    def __str__(self) -> str:
        """The pairs as phrases, and the words that are lacked."""
        parts = [f'"{phrase}"' for phrase in phrases_of(self.pairs)]
        if self.lacked:
            parts.append(f"without {', '.join(self.lacked)}")
        return ", ".join(parts) or "none"

    def has(self, caption: Sequence[str]) -> bool:
        """Whether a caption is likelier in this manner than in the model's (naive Bayes)."""
        words = set(caption)
        pairs = set(pairs_of([word for word in caption if word not in self.lacked]))
        are_present = [
            *(pair in pairs for pair in self.pairs),
            *(word in words for word in self.lacked),
        ]
        return (
            sum(
                presence if is_present else absence
                for is_present, (presence, absence) in zip(are_present, self.log_odds, strict=True)
            )
            > 0
        )

    def content(self, caption: Sequence[str]) -> list[str]:
        """The words of a caption, without those that end a pair and those that are lacked."""
        words = [word for word in caption if word not in self.lacked]
        return [word for pair in pairs_of(words) if pair not in self.pairs for word in pair[1:]]


def pairs_of(caption: Sequence[str]) -> list[Pair]:
    """The pairs of words that follow each other; the first is with `BEGINNING`."""
    return list(pairwise([BEGINNING, *caption]))


def phrases_of(pairs: Sequence[Pair]) -> list[str]:
    """Pairs joined to phrases where one ends with the word by which another begins."""
    phrases: list[list[str]] = []
    following = {word for word, _ in pairs}
    inner = {after for _, after in pairs} & following
    for before, after in pairs:
        if before in inner:
            continue
        phrase = [before, after]
        while (after := next((b for a, b in pairs if a == phrase[-1]), "")) and len(phrase) < 6:
            phrase.append(after)
        phrases.append(phrase)
    return [" ".join(phrase).strip() for phrase in phrases]


def _gained_pairs(
    captions: Sequence[Sequence[str]], model_shares: Mapping[Pair, float]
) -> tuple[list[Pair], list[tuple[float, float]]]:
    """The pairs that captions have and a model's captions hardly ever have, and their log odds.

    They are found one after the other, each the first in the captions of those with about the
    highest gain: what follows "photo of" is compared with what the model says in its place.
    """
    pairs: list[Pair] = []
    log_odds: list[tuple[float, float]] = []
    total = len(captions)
    while True:
        candidates: dict[Pair, float] = {}  # the model's share
        positions: dict[Pair, int] = {}  # the earliest in a caption
        for caption in captions:
            context = BEGINNING
            for position, pair in enumerate(pairs_of(caption)):
                if pair not in pairs:
                    candidates[pair] = model_shares[context, pair[1]]
                    positions[pair] = min(position, positions.get(pair, position))
                    context = pair[1]
        shares = _shares([pairs_of(caption) for caption in captions])
        gains = {}
        for pair, model_share in candidates.items():
            share = shares[pair]
            gain, mean_share = share - model_share, (share + model_share) / 2
            error = math.sqrt(2 * mean_share * (1 - mean_share) / total)
            is_frequent = share >= min(GAIN_RATIO * model_share, ALWAYS * total / (total + 1))
            minimum = max(MIN_GAIN, GAIN_ERRORS * error)
            if pair[1] in {before for before, _ in pairs}:
                minimum = max(CONNECTED_GAIN, CONNECTED_ERRORS * error)
            if is_frequent and gain >= minimum:
                gains[pair] = gain
        if not gains:
            return pairs, log_odds
        highest_gain = max(gains.values())
        highest = [pair for pair in sorted(gains) if gains[pair] >= NEARLY * highest_gain]
        pair = min(highest, key=positions.__getitem__)
        pairs.append(pair)
        log_odds.append(_log_odds(shares[pair], candidates[pair]))


def _shares(captions: Sequence[Iterable[Feature]]) -> defaultdict[Feature, float]:
    """The share of captions that have each feature; half a caption is added to each count."""
    counts = Counter(feature for caption in captions for feature in set(caption))
    total = len(captions) + 1
    return defaultdict(
        lambda: 0.5 / total, {feature: (count + 0.5) / total for feature, count in counts.items()}
    )


def _log_odds(share: float, model_share: float) -> tuple[float, float]:
    """What presence and absence of a feature say, in nats, by its shares."""
    return math.log(share / model_share), math.log((1 - share) / (1 - model_share))
