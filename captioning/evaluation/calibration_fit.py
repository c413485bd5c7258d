"""Fit a calibration to the captions of a split of photos.

Shapes: I images, S confidence features, D annotation width, P patterns, n examples.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from scipy.optimize import minimize
from scipy.special import logit
from torch.nn.functional import interpolate

from captioning.captioner import Captioner
from captioning.captioner.calibration import FEATURES, LEAST_CHANCE, Calibration
from captioning.evaluation.assessment import TEMPERATURES, Assessment

BIAS_PENALTY = 0.5 / 1.0**2
"""Weight of the squared change of the start's bias, for all photos together."""

SLOPE_PENALTY = 0.5 / 0.2**2
"""Weight of the squared changes of standardised regression weights and of the log temperature."""

KIND_PENALTY = 1.5e3
"""Weight of the squared changes of the weights of the kind of photo."""

CALIBRATION_FOLDS = 5
"""The kinds of the photos of a fold are computed from the photos of the others."""

PATTERN_WEIGHT = 0.1
"""Weight of all patterns relative to that of all photos."""

ZEROS = dict.fromkeys(FEATURES, 0.0)

UNCALIBRATED = Calibration(1.0, ZEROS, ZEROS, 0.0, named=(0.5, 0.0))
"""The start of a model without a calibration: its captions are equally likely to be good, and the
log-odds that people name what a word names are half those of the word's probability."""

BOUNDS = ((0, None), (None, 0), (None, None), (None, None), (0, None), (0, None))
"""Bounds of the weights of `FEATURES`. Likelier words never lower the confidence and more entropy
never raises it, so that odd pictures do not profit from chance in few photos.
"""


@torch.no_grad()
def pattern_vectors(captioner: Captioner, count: int = 100) -> Float[np.ndarray, "P D"]:
    """Compute the mean annotation vectors of random blocks, stripes, gradients and noise.

    A model should be unsure of them (outlier exposure, Hendrycks et al. 2019).
    """
    size, generator = captioner.preprocessing.size, torch.Generator().manual_seed(0)
    network, vectors = captioner.network, []
    for number in range(count):
        rows, columns = (size ** torch.rand(2, generator=generator)).int().tolist()
        blocks = torch.randint(256, (1, 3, rows, columns), generator=generator).float()
        mode = "bilinear" if number % 2 else "nearest"
        pixels = interpolate(blocks, (size, size), mode=mode).to(torch.uint8)
        vectors.append(network.encode(pixels.to(network.device)).float().mean(dim=1).cpu())
    return torch.cat(vectors).numpy()


def fit_calibration(
    assessment: Assessment,
    start: Calibration | None = None,
    patterns: Float[np.ndarray, "P D"] | None = None,
) -> Calibration:
    """Fit a calibration to captions.

    Args:
        assessment: the captions.
        start: the calibration of the model, or of the model that it was trained from. All
            parameters are shrunk towards it: fewer than about 100 photos change little but the
            bias. None shrinks towards the share of good captions.
        patterns: `pattern_vectors`. If there are several data sets, photos like these count as
            photos whose captions are never good.
    """
    start = start or UNCALIBRATED
    if not len(assessment.is_good):
        return start
    photo_kinds, photo_weights = _photo_kinds(assessment, start, patterns)
    features = np.column_stack([assessment.features[:, :-1], photo_kinds])
    is_known = ~np.isnan(features)
    means = np.nan_to_num(features).sum(axis=0) / np.maximum(is_known.sum(axis=0), 1)
    features = np.where(is_known, features, means)
    scales = np.maximum(features.std(axis=0), 1e-6)
    standardised = (features - means) / scales
    start_means = np.array([start.means[name] for name in FEATURES])
    start_weights = np.array([start.weights[name] for name in FEATURES])
    bias_change = (means - start_means) @ start_weights
    weights, bias = logistic_regression(
        standardised,
        assessment.is_good,
        example_weights=assessment.image_weights,
        start_weights=start_weights * scales,
        start_bias=start.bias + bias_change,
        photo_count=len(assessment.is_good),
        bounds=BOUNDS,
    )
    temperature = _best_temperature(assessment, start)
    naming = _fit_naming(
        assessment,
        start,
        temperature=temperature,
        photo_kinds=standardised[:, -1],
        kind_scale=scales[-1],
        kind_change=means[-1] - start_means[-1],
    )
    return Calibration(
        temperature=float(TEMPERATURES[temperature]),
        means=dict(zip(FEATURES, means.tolist(), strict=True)),
        weights=dict(zip(FEATURES, (weights / scales).tolist(), strict=True)),
        bias=bias,
        photo=photo_weights,
        named=naming,
        search=assessment.search,
    )


def _best_temperature(assessment: Assessment, start: Calibration) -> int:
    """Return the index in `TEMPERATURES` at which top words are as probable as they are right.

    The loss is the log loss of whether the likeliest word is right: the cross-entropy of all words
    would leave its probability too high or too low.
    """
    chances = np.concatenate(assessment.top_chances).clip(1e-6, 1 - 1e-6)
    is_right = np.concatenate(assessment.is_top_right)[:, None]
    word_weights = np.repeat(assessment.image_weights, [*map(len, assessment.is_top_right)])
    log_losses = np.where(is_right, -np.log(chances), -np.log1p(-chances))
    losses = word_weights @ log_losses / max(word_weights.sum(), 1)
    changes = np.log(TEMPERATURES / start.temperature)
    penalties = SLOPE_PENALTY / max(len(is_right), 1) * changes**2
    return int((losses + penalties).argmin())


def _fit_naming(
    assessment: Assessment,
    start: Calibration,
    *,
    temperature: int,
    photo_kinds: Float[np.ndarray, " I"],
    kind_scale: np.floating[Any],
    kind_change: np.floating[Any],
) -> tuple[float, ...]:
    """Fit `Calibration.named`; returns nothing if there are no content words.

    Args:
        assessment: the captions.
        start: the calibration to shrink towards.
        temperature: an index in `TEMPERATURES`.
        photo_kinds: the standardised kind of each photo.
        kind_scale: the standard deviation of the kinds.
        kind_change: the mean of the kinds, minus that of the start.
    """
    counts = [*map(len, assessment.is_word_named)]
    if not any(counts):
        return ()
    slope, intercept, kind_weight = (*(start.named or UNCALIBRATED.named), 0.0)[:3]
    if kind_weight:
        intercept += float(kind_weight * kind_change)
    chances = np.concatenate(assessment.word_chances)[:, temperature]
    log_odds = logit(chances.clip(LEAST_CHANCE, 1 - LEAST_CHANCE))
    weights, intercept = logistic_regression(
        np.column_stack([log_odds, np.repeat(photo_kinds, counts)]),
        np.concatenate(assessment.is_word_named),
        example_weights=np.repeat(assessment.image_weights, counts),
        start_weights=np.array([slope, kind_weight * kind_scale]),
        start_bias=intercept,
        photo_count=len(assessment.is_good),
        bounds=[(0, None), (0, None)],
    )
    slope, kind_weight = weights.tolist()
    return slope, intercept, float(kind_weight / kind_scale)


def logistic_regression(
    features: Float[np.ndarray, "n S"],
    targets: Bool[np.ndarray, " n"],
    *,
    example_weights: Float[np.ndarray, " n"],
    start_weights: Float[np.ndarray, " S"],
    start_bias: float,
    photo_count: int,
    bounds: Sequence[tuple[Any, Any]],
) -> tuple[Float[np.ndarray, " S"], float]:
    """Fit the weights and the bias of a logistic regression, shrunk towards a start.

    The more photos there are, the less they are shrunk.

    Args:
        features: of each example.
        targets: of each example.
        example_weights: of the cross-entropies.
        start_weights: weights to start from.
        start_bias: bias to start from.
        photo_count: the number of photos that the examples are from.
        bounds: lower and upper bound of each weight; None for no bound.
    """
    start = np.append(start_weights, start_bias)
    penalties = np.append(np.full(len(start_weights), SLOPE_PENALTY), BIAS_PENALTY) / photo_count

    def loss(parameters: Float[np.ndarray, " _"]) -> float:
        logits = features @ parameters[:-1] + parameters[-1]
        cross_entropy = np.logaddexp(0.0, logits) - targets * logits
        changes = parameters - start
        return float(np.average(cross_entropy, weights=example_weights) + penalties @ changes**2)

    optimum = minimize(loss, start, method="L-BFGS-B", bounds=[*bounds, (None, None)]).x
    return optimum[:-1], float(optimum[-1])


def _photo_kinds(
    assessment: Assessment, start: Calibration, patterns: Float[np.ndarray, "P D"] | None
) -> tuple[Float[np.ndarray, " I"], Sequence[float]]:
    """Compute the kind of each photo, and `Calibration.photo`.

    The kind of a photo is the share of good captions in the data set whose photos look like it, by
    a ridge regression on the mean annotation vector, shrunk towards the start. With one data set it
    is that of the start. The kind of each photo is computed from the photos of other folds.
    """
    count = len(assessment.is_good)
    if len(np.unique(assessment.data_sets)) < 2:
        photo_kinds = start.photo_kind(torch.from_numpy(assessment.vectors)[:, None]).numpy()
        return photo_kinds, start.photo
    good_shares = np.zeros(count)
    for number in np.unique(assessment.data_sets):
        in_set = assessment.data_sets == number
        good_shares[in_set] = assessment.is_good[in_set].mean()
    vectors = assessment.vectors.astype(np.float64)
    means = vectors.mean(axis=0)
    # One scale for all elements: a single one may hardly vary in few photos.
    scale = max(float(vectors.var(axis=0).mean() ** 0.5), 1e-6)
    if patterns is not None:
        vectors = np.concatenate([vectors, patterns])
    pattern_count = len(vectors) - count
    mean_share = float(np.average(good_shares, weights=assessment.image_weights))
    *start_weights, bias = start.photo or (*np.zeros(len(means)), mean_share)
    start_kinds = vectors @ start_weights + bias
    standardised = (vectors - means) / scale
    targets = np.append(good_shares, np.zeros(pattern_count)) - start_kinds
    pattern_weight = PATTERN_WEIGHT * count / max(pattern_count, 1)
    weights = np.append(assessment.image_weights, np.full(pattern_count, pattern_weight))
    folds = np.arange(len(targets)) // 2 % CALIBRATION_FOLDS
    photo_kinds = start_kinds.copy()
    for fold in range(CALIBRATION_FOLDS):
        in_fold = folds == fold
        slopes = _ridge_regression(standardised[~in_fold], targets[~in_fold], weights[~in_fold])
        photo_kinds[in_fold] += standardised[in_fold] @ slopes
    change = _ridge_regression(standardised, targets, weights) / scale
    photo_weights = (*(start_weights + change).tolist(), bias - float(means @ change))
    return photo_kinds[:count], photo_weights


def _ridge_regression(
    features: Float[np.ndarray, "n D"],
    targets: Float[np.ndarray, " n"],
    weights: Float[np.ndarray, " n"],
) -> Float[np.ndarray, " D"]:
    """Fit a linear regression without a bias, with the penalty `KIND_PENALTY`."""
    weighted = weights * features.T
    ridge = KIND_PENALTY * np.eye(len(weighted))
    return np.linalg.solve(weighted @ features + ridge, weighted @ targets)


def borrowed_calibration(
    calibration: Calibration, captioner: Captioner, confidences: Mapping[Path, float | None]
) -> Calibration:
    """The calibration of a start, for a captioner that says the same in another manner.

    Its bias is moved until the captioner is on average as sure of the photos as the start.

    Args:
        calibration: the start's.
        captioner: the captioner, with an own vocabulary, which gets the calibration.
        confidences: the start's, in its captions of photos like those that it was calibrated on.
    """
    calibration = replace(calibration, search=captioner.search.config)
    captioner.calibration = calibration
    captions = captioner([*confidences])
    mean_log_odds = [
        logit(np.array(values, dtype=float)).mean()
        for values in ([*confidences.values()], [caption.confidence for caption in captions])
    ]
    shift = float(mean_log_odds[0] - mean_log_odds[1])
    captioner.calibration = replace(calibration, bias=calibration.bias + shift)
    return captioner.calibration
