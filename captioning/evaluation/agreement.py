"""How well metrics agree with people: Kendall's rank correlations, with intervals over images.

Kendall, "The Treatment of Ties in Ranking Problems", Biometrika 1945, for tau-b; Stuart, "The
Estimation and Comparison of Strengths of Association in Contingency Tables", 1953, for tau-c.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from captioning.data.judgements import Judgements
from captioning.data.tokens import tokens
from captioning.evaluation.report import aligned
from captioning.metrics.registry import scored
from captioning.metrics.scores import (
    BLOCK,
    LEVEL,
    RESAMPLES,
    Interval,
    PhotoScorer,
    Scorer,
    generated_tokens,
    percentile_interval,
    resamples,
)
from captioning.progress_bar import ProgressBar, stage

VARIANTS = ("b", "c")


class Tau(NamedTuple):
    """A rank correlation from -1 to 1.

    Attributes:
        value: the correlation; None if all captions have the same score.
        interval: its confidence interval; None if it is undefined in most resamples.
    """

    value: float | None
    interval: Interval | None


@dataclass(frozen=True)
class Agreement:
    """The rank correlations of scores with ratings.

    Attributes:
        ratings: their number.
        pairs: the number of rated pairs of an image and a caption.
        images: the number of images.
        taus: tau-b and tau-c of each score by name.
    """

    ratings: int
    pairs: int
    images: int
    taus: Mapping[str, Mapping[str, Tau]]

    @classmethod
    def of(
        cls,
        scores: Mapping[str, NDArray[np.float64]],
        ratings: NDArray[np.float64],
        images: NDArray[np.int64],
        pairs: int,
        seed: int = 0,
    ) -> "Agreement":
        """Compare scores with J ratings.

        Args:
            scores: for each name the score of each rating's caption, (J,).
            ratings: (J,).
            images: (J,), the image of each rating, from 0.
            pairs: the number of rated captions.
            seed: of the resamples.
        """
        from scipy.stats import kendalltau  # takes a second to import

        by_image = np.argsort(images, kind="stable")
        people = _ranks(ratings[by_image])
        drawn = np.concatenate(list(resamples(int(images.max()) + 1, seed)))
        taus: dict[str, dict[str, Tau]] = {}
        with ProgressBar("intervals of the correlations", "scores", total=len(scores)) as bar:
            for name, values in scores.items():
                resampled = resampled_taus(
                    _ranks(values[by_image]), people, images[by_image], drawn
                )
                taus[name] = {}
                for variant in VARIANTS:
                    tau = float(kendalltau(values, ratings, variant=variant).statistic)
                    known = resampled[variant][~np.isnan(resampled[variant])]
                    taus[name][variant] = Tau(
                        None if np.isnan(tau) else tau,
                        None if len(known) < RESAMPLES / 2 else percentile_interval(known),
                    )
                bar.update(1)
        return cls(len(ratings), pairs, len(np.unique(images)), taus)

    @classmethod
    @stage("scoring the captions")
    def of_judgements(
        cls,
        judgements: Judgements,
        scorers: Iterable[Scorer],
        mean: bool = False,
        photo_scorers: Iterable[PhotoScorer] = (),
    ) -> "Agreement":
        """Score rated captions and compare the scores with the ratings.

        As in Hessel et al. 2021, each rating counts separately, and its caption is scored once per
        rating, which affects CIDEr's document frequencies. With `mean`, each caption counts once,
        with the mean of its ratings.

        Raises:
            InputError: a photo cannot be read.
        """
        rated = [
            (pair, rating)
            for pair in judgements.pairs
            for rating in ([fmean(pair.ratings)] if mean else pair.ratings)
        ]
        candidates = [generated_tokens(pair.caption) for pair, _ in rated]
        written = {
            image: list(map(tokens, captions)) for image, captions in judgements.references.items()
        }
        references = [written[pair.image] for pair, _ in rated]
        numbers = {image: number for number, image in enumerate(written)}
        scores = [scored(scorer, candidates, references) for scorer in scorers]
        scores += [
            scorer(
                [pair.caption for pair, _ in rated],
                [judgements.references[pair.image] for pair, _ in rated],
                [pair.image for pair, _ in rated],
            )
            for scorer in photo_scorers
        ]
        return cls.of(
            {name: values for each in scores for name, values in each.images.items()},
            np.array([rating for _, rating in rated], dtype=np.float64),
            np.array([numbers[pair.image] for pair, _ in rated], dtype=np.int64),
            len(judgements.pairs),
        )

    def as_json(self) -> dict[str, Any]:
        """The correlations as plain values."""
        return {
            "ratings": self.ratings,
            "pairs": self.pairs,
            "images": self.images,
            "interval": LEVEL,
            "scores": {
                name: {
                    f"tau-{variant}": {"value": tau.value}
                    | ({} if tau.interval is None else tau.interval._asdict())
                    for variant, tau in variants.items()
                }
                for name, variants in self.taus.items()
            },
        }

    def table(self) -> str:
        """The correlations with their intervals, one score per line."""
        level = f"{LEVEL * 100:.0f} % interval"
        header = ["", *(cell for variant in VARIANTS for cell in (f"tau-{variant}", level))]
        rows = []
        for name, variants in self.taus.items():
            rows.append([name])
            for value, interval in (variants[variant] for variant in VARIANTS):
                rows[-1].append("none" if value is None else f"{value:.4f}")
                rows[-1].append("" if interval is None else "{:.4f} to {:.4f}".format(*interval))
        return aligned([header, *rows])


def resampled_taus(
    scores: NDArray[np.int64],
    ratings: NDArray[np.int64],
    images: NDArray[np.int64],
    drawn: NDArray[np.int64],
    block: int = BLOCK,
) -> dict[str, NDArray[np.float64]]:
    """Tau-b and tau-c of bootstrap resamples.

    The contribution of each pair of images to concordant minus discordant pairs is computed once. A
    resample contains it (count of one image) * (count of the other) times.

    Args:
        scores: (J,), only their order counts.
        ratings: (J,), only their order counts.
        images: (J,), the image of each rating; ascending, from 0.
        drawn: (R, images), how often each resample has each image.
        block: pairs of ratings in memory at a time; does not affect the results.

    Returns:
        For "b" and "c" the correlations, (R,); NaN if all scores or ratings are equal.
    """
    rows = max(1, block // len(images))
    starts = np.flatnonzero(np.diff(images, prepend=-1))
    counts = drawn[:, images[starts]].astype(np.float32)  # exact: sums stay below 2**24
    concordant = np.zeros(len(drawn))  # minus discordant, with both orders of each pair
    for first in range(0, len(images), rows):
        some = slice(first, first + rows)
        signs = [
            (values[some, None] > values).astype(np.int8)
            - (values[some, None] < values).astype(np.int8)
            for values in (scores, ratings)
        ]
        both = signs[0] * signs[1]
        of_images = np.add.reduceat(both, starts, axis=1, dtype=np.int32).astype(np.float32)
        summed = of_images @ counts.T
        concordant += np.einsum("br,rb->r", summed, drawn[:, images[some]], dtype=np.float64)
    difference = concordant / 2
    size = drawn @ np.bincount(images, minlength=drawn.shape[1])
    tied_scores, kinds_of_score = _ties(scores, images, drawn, rows)
    tied_ratings, kinds_of_rating = _ties(ratings, images, drawn, rows)
    every = size * (size - 1) / 2
    classes = np.minimum(kinds_of_score, kinds_of_rating)
    with np.errstate(divide="ignore", invalid="ignore"):
        b = difference / np.sqrt((every - tied_scores) * (every - tied_ratings))
        c = 2 * difference / (size.astype(np.float64) ** 2 * (classes - 1) / classes)
    return {"b": np.where(classes > 1, b, np.nan), "c": np.where(classes > 1, c, np.nan)}


def _ties(
    values: NDArray[np.int64], images: NDArray[np.int64], drawn: NDArray[np.int64], rows: int
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The numbers of pairs of equal values, and of distinct values, in each resample, (R,)."""
    order = np.argsort(values, kind="stable")
    starts = np.flatnonzero(np.diff(values[order], prepend=values.min() - 1))
    tied, kinds = [], []
    for first in range(0, len(drawn), rows):
        weights = drawn[first : first + rows, images[order]]
        sizes = np.add.reduceat(weights, starts, axis=1)
        tied.append((sizes * (sizes - 1)).sum(axis=1) / 2)
        kinds.append((sizes > 0).sum(axis=1))
    return np.concatenate(tied), np.concatenate(kinds)


def _ranks(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Integers in the same order."""
    return np.unique(values, return_inverse=True)[1].astype(np.int64).reshape(-1)
