"""How far a captioner's confidence agrees with what comes true."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float

from captioning.captioner.calibration import Calibration
from captioning.evaluation.assessment import TEMPERATURES, Assessed, calibrated

BINS = 10  # of equal width, for the expected calibration error


@dataclass(frozen=True, eq=False)
class Reliability:
    """How far a model's probabilities agree with how often they come true."""

    probabilities: Float[np.ndarray, " n"]
    outcomes: Bool[np.ndarray, " n"]

    @classmethod
    def joined(
        cls, parts: Iterable[tuple[Float[np.ndarray, " _"], Bool[np.ndarray, " _"]]]
    ) -> "Reliability":
        """That of the probabilities and outcomes of several parts."""
        none = np.zeros(0), np.zeros(0, dtype=bool)
        return cls(*map(np.concatenate, zip(none, *parts, strict=True)))

    @cached_property
    def bins(self) -> list[tuple[float, float, int]]:
        """Mean probability, share that came true, and number, of each non-empty bin."""
        places = np.minimum((self.probabilities * BINS).astype(int), BINS - 1)
        bins = []
        for place in np.unique(places):
            mask = places == place
            mean, share = self.probabilities[mask].mean(), self.outcomes[mask].mean()
            bins.append((float(mean), float(share), int(mask.sum())))
        return bins

    @property
    def error(self) -> float:
        """The expected calibration error (Guo et al. 2017, eq. 3)."""
        total = max(len(self.outcomes), 1)
        return sum(abs(mean - share) * count / total for mean, share, count in self.bins)

    @cached_property
    def risks(self) -> Float[np.ndarray, " n"]:
        """The share of wrong ones among the most probable 1, 2, ..., n."""
        order = np.argsort(-self.probabilities, kind="stable")
        return np.cumsum(~self.outcomes[order]) / np.arange(1, len(order) + 1)

    @property
    def areas(self) -> tuple[float, float, float]:
        """The area under the curve of risk over coverage: ours, the best, and a random order's."""
        best = Reliability(self.outcomes.astype(float), self.outcomes)
        return float(self.risks.mean()), float(best.risks.mean()), float(self.risks[-1])


@dataclass(frozen=True, eq=False)
class CalibrationReport:
    """How well a captioner is calibrated on a split."""

    captions: Reliability  # of the confidence that captions are good
    words: Reliability  # of the probability that the likeliest word is the reference's
    named: Reliability  # of the chance that people name what a word of the caption names

    @classmethod
    def of(cls, *parts: tuple[Assessed, Calibration]) -> "CalibrationReport":
        """The report of captions, each part of them with a calibration."""
        captions: list[Any] = []
        words: list[Any] = []
        named: list[Any] = []
        for assessed, calibration in parts:
            features = torch.from_numpy(assessed.features).double()
            kinds = calibration.kind(torch.from_numpy(assessed.vectors)[:, None])
            features[:, -1] = kinds
            captions.append((calibration.confidence(features).numpy(), assessed.good))
            nearest = int(abs(np.log(TEMPERATURES / calibration.temperature)).argmin())
            top_chances = [chances[:, nearest] for chances in assessed.top_chances]
            words += zip(top_chances, assessed.is_top_right, strict=True)
            if not calibration.named:
                continue
            photos = zip(kinds.tolist(), assessed.word_chances, assessed.is_word_named, strict=True)
            for kind, word_chances, is_named in photos:
                chances_named = [
                    calibration.chance_named("", chance, kind)
                    for chance in word_chances[:, nearest].tolist()
                ]
                named.append((np.array(chances_named, dtype=float), is_named))
        return cls(*map(Reliability.joined, (captions, words, named)))

    @classmethod
    def across_halves(
        cls,
        assessed: Assessed,
        start: Calibration | None = None,
        patterns: Float[np.ndarray, "P D"] | None = None,
    ) -> "list[CalibrationReport]":
        """The report of a calibration of each half of the photos, used on the other half.

        It is followed by a report on each data set, if there are several. A start that was fitted
        to these photos flatters.
        """
        odd = np.arange(len(assessed.good)) % 2 == 1
        halves = assessed.part(~odd), assessed.part(odd)
        fitted = [calibrated(half, start, patterns) for half in halves[::-1]]
        parts = list(zip(halves, fitted, strict=True))
        numbers = np.unique(assessed.sets)
        return [
            cls.of(*parts),
            *(
                cls.of(*((half.part(half.sets == number), how) for half, how in parts))
                for number in (numbers if len(numbers) > 1 else ())
            ),
        ]

    def as_json(self) -> dict[str, Any]:
        """The report as plain values."""
        ours, best, random = self.captions.areas
        return {
            "good captions": float(self.captions.outcomes.mean()),
            "mean confidence": float(self.captions.probabilities.mean()),
            "calibration error of confidence": self.captions.error,
            "calibration error of words": self.words.error,
            "area of risk over coverage": ours,
            "area of the best order": best,
            "area of a random order": random,
            "bins of confidence": self.captions.bins,
            "bins of words": self.words.bins,
        } | (
            {
                "calibration error of what words name": self.named.error,
                "bins of what words name": self.named.bins,
            }
            if len(self.named.outcomes)
            else {}
        )

    def line(self) -> str:
        """The report in a line."""
        return (
            f"confidence {self.captions.probabilities.mean():.3f} for "
            f"{self.captions.outcomes.mean():.3f} good captions; calibration error "
            f"{self.captions.error:.3f} of captions, {self.words.error:.3f} of words"
            + (f", {self.named.error:.3f} of what they name" if len(self.named.outcomes) else "")
        )
