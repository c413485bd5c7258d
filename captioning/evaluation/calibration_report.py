"""Reliability of a captioner's probabilities: calibration errors and risk over coverage."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float

from captioning.captioner.calibration import Calibration
from captioning.evaluation.assessment import TEMPERATURES, Assessment
from captioning.evaluation.calibration_fit import fit_calibration

BINS = 10
"""Bins of equal width, for the expected calibration error."""


@dataclass(frozen=True, eq=False)
class Reliability:
    """Probabilities of events, and whether the events happened.

    Attributes:
        probabilities: of the events.
        outcomes: whether each event happened.
    """

    probabilities: Float[np.ndarray, " n"]
    outcomes: Bool[np.ndarray, " n"]

    @classmethod
    def joined(
        cls, parts: Iterable[tuple[Float[np.ndarray, " _"], Bool[np.ndarray, " _"]]]
    ) -> "Reliability":
        """Concatenate probabilities and outcomes of several parts."""
        probabilities, outcomes = [np.zeros(0)], [np.zeros(0, dtype=bool)]
        for part_probabilities, part_outcomes in parts:
            probabilities.append(part_probabilities)
            outcomes.append(part_outcomes)
        return cls(np.concatenate(probabilities), np.concatenate(outcomes))

    @cached_property
    def bins(self) -> list[tuple[float, float, int]]:
        """The mean probability, share of true outcomes, and count of each non-empty bin."""
        indices = np.minimum((self.probabilities * BINS).astype(int), BINS - 1)
        bins = []
        for index in np.unique(indices):
            mask = indices == index
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
        """The shares of false outcomes among the most probable 1, 2, ..., n events."""
        order = np.argsort(-self.probabilities, kind="stable")
        return np.cumsum(~self.outcomes[order]) / np.arange(1, len(order) + 1)

    @property
    def areas(self) -> tuple[float, float, float]:
        """The areas under risk over coverage of this order, the best, and a random one."""
        best = Reliability(self.outcomes.astype(float), self.outcomes)
        return float(self.risks.mean()), float(best.risks.mean()), float(self.risks[-1])


@dataclass(frozen=True, eq=False)
class CalibrationReport:
    """Reliability of a captioner's probabilities on a split.

    Attributes:
        captions: of the confidence that a caption is good.
        words: of the probability that the likeliest word is the word of the reference.
        naming: of the chance that people name what a word of the caption names.
    """

    captions: Reliability
    words: Reliability
    naming: Reliability

    @classmethod
    def of(cls, *parts: tuple[Assessment, Calibration]) -> "CalibrationReport":
        """Build the report of captions, in parts with a calibration for each."""
        captions: list[Any] = []
        words: list[Any] = []
        naming: list[Any] = []
        for assessment, calibration in parts:
            features = torch.tensor(assessment.features, dtype=torch.double)  # a copy
            photo_kinds = calibration.photo_kind(torch.from_numpy(assessment.vectors)[:, None])
            features[:, -1] = photo_kinds
            captions.append((calibration.confidence(features).numpy(), assessment.is_good))
            temperature = int(abs(np.log(TEMPERATURES / calibration.temperature)).argmin())
            top_chances = [chances[:, temperature] for chances in assessment.top_chances]
            words += zip(top_chances, assessment.is_top_right, strict=True)
            if not calibration.named:
                continue
            for kind, word_chances, is_named in zip(
                photo_kinds.tolist(), assessment.word_chances, assessment.is_word_named, strict=True
            ):
                naming_chances = [
                    calibration.chance_named("", chance, kind)
                    for chance in word_chances[:, temperature].tolist()
                ]
                naming.append((np.array(naming_chances, dtype=float), is_named))
        return cls(
            captions=Reliability.joined(captions),
            words=Reliability.joined(words),
            naming=Reliability.joined(naming),
        )

    @classmethod
    def across_halves(
        cls,
        assessment: Assessment,
        start: Calibration | None = None,
        patterns: Float[np.ndarray, "P D"] | None = None,
    ) -> "list[CalibrationReport]":
        """Build the report of calibrations that are fitted to each half and used on the other.

        Args:
            assessment: the captions.
            start: as in `fit_calibration`; one that was fitted to these photos makes the report
                too good.
            patterns: as in `fit_calibration`.

        Returns:
            The report of all photos and, if there are several data sets, that of each of them.
        """
        is_odd = np.arange(len(assessment.is_good)) % 2 == 1
        even, odd = assessment.subset(~is_odd), assessment.subset(is_odd)
        odd_calibration = fit_calibration(odd, start, patterns)
        even_calibration = fit_calibration(even, start, patterns)
        reports = [cls.of((even, odd_calibration), (odd, even_calibration))]
        numbers = np.unique(assessment.data_sets)
        if len(numbers) > 1:
            for number in numbers:
                even_of_set = even.subset(even.data_sets == number)
                odd_of_set = odd.subset(odd.data_sets == number)
                parts = (even_of_set, odd_calibration), (odd_of_set, even_calibration)
                reports.append(cls.of(*parts))
        return reports

    def as_json(self) -> dict[str, Any]:
        """Return the report as plain values."""
        area, best_area, random_area = self.captions.areas
        content: dict[str, Any] = {
            "good captions": float(self.captions.outcomes.mean()),
            "mean confidence": float(self.captions.probabilities.mean()),
            "calibration error of confidence": self.captions.error,
            "calibration error of words": self.words.error,
            "area of risk over coverage": area,
            "area of the best order": best_area,
            "area of a random order": random_area,
            "bins of confidence": self.captions.bins,
            "bins of words": self.words.bins,
        }
        if len(self.naming.outcomes):
            content["calibration error of what words name"] = self.naming.error
            content["bins of what words name"] = self.naming.bins
        return content

    def line(self) -> str:
        """Format the report as a line."""
        line = (
            f"confidence {self.captions.probabilities.mean():.3f} for "
            f"{self.captions.outcomes.mean():.3f} good captions; calibration error "
            f"{self.captions.error:.3f} of captions, {self.words.error:.3f} of words"
        )
        if len(self.naming.outcomes):
            line += f", {self.naming.error:.3f} of what they name"
        return line
