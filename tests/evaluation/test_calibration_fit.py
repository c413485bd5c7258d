"""Fits of calibrations, and their reports, on captions that are good by a known rule."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from captioning.captioner.calibration import FEATURES, Calibration
from captioning.evaluation.assessment import TEMPERATURES, Assessment
from captioning.evaluation.calibration_fit import UNCALIBRATED, ZEROS, fit_calibration
from captioning.evaluation.calibration_report import CalibrationReport, Reliability
from tests.conftest import quick_ones


@cache
def assessment(images: int = 4000, seed: int = 0) -> Assessment:
    """Captions that are good by a known rule, and words that come true more seldom than said."""
    random = np.random.default_rng(seed)
    features = random.normal(size=(images, len(FEATURES)))
    odds_of_good = features[:, 0] + 0.5 * features[:, FEATURES.index("rarest word")] + 0.3
    good = random.random(images) < 1 / (1 + np.exp(-odds_of_good))
    logits = random.normal(size=(3 * images, 8)) * 2.0
    truth = np.exp(logits / 1.5)  # so the temperature is 1.5
    words = (
        random.random((3 * images, 1)) > np.cumsum(truth / truth.sum(1, keepdims=True), 1)
    ).sum(1)
    scaled = logits[:, :, None] / TEMPERATURES
    log_probs = scaled - np.log(np.exp(scaled).sum(axis=1, keepdims=True))
    odds = random.normal(size=(2 * images, 1)) + np.zeros(len(TEMPERATURES))
    word_chances = 1 / (1 + np.exp(-odds))
    is_named = random.random(2 * images) < 1 / (1 + np.exp(-0.5 * odds[:, 0] - 1))
    return Assessment(
        captions=dict.fromkeys(range(images), "a caption"),
        features=features,
        is_good=good,
        top_chances=np.split(np.exp(log_probs.max(axis=1)), images),
        is_top_right=np.split(logits.argmax(axis=1) == words, images),
        word_chances=np.split(word_chances, images),
        is_word_named=np.split(is_named, images),
        vectors=random.normal(size=(images, 2)),
        data_sets=np.zeros(images, dtype=int),
        search={},
    )


@cache
def assessment_of_two_sets(images: int = 4000, seed: int = 0) -> Assessment:
    """Photos of two data sets, which their vectors tell apart."""
    photos = assessment(images, seed)
    return replace(photos, data_sets=(photos.vectors[:, 0] > 0).astype(int))


def test_a_calibration_finds_the_temperature_and_the_rule() -> None:
    calibration = fit_calibration(assessment(16_000))
    assert calibration.temperature == pytest.approx(1.5, rel=0.06)  # a step of the grid
    expected_weights = ZEROS | {"mean log probability": 1.0, "rarest word": 0.5}
    assert calibration.weights == pytest.approx(expected_weights, abs=0.1)
    assert calibration.named == pytest.approx((0.5, 1.0, 0.0), abs=0.1)
    # With one data set, the kind of photo is not known and gets no weight.
    assert calibration.photo == ()
    assert calibration.means["kind of photo"] == 0
    assert calibration.weights["kind of photo"] == pytest.approx(0, abs=1e-3)
    expected = 1 / (1 + np.exp(-1))
    assert calibration.chance_named("dog", 0.5, np.nan) == pytest.approx(expected, abs=0.02)
    assert (
        calibration.chance_named("The", 0.5, np.nan)
        is calibration.chance_named("'s", 0.5, 1.0)
        is None
    )


def test_captions_without_content_words_count_as_average() -> None:
    photos = assessment(16_000)
    column = FEATURES.index("content words")
    features = photos.features.copy()
    features[:, column] += 2.0
    features[::4, column] = np.nan
    calibration = fit_calibration(replace(photos, features=features))
    assert calibration.means["content words"] == pytest.approx(2.0, abs=0.05)
    expected_weights = ZEROS | {"mean log probability": 1.0, "rarest word": 0.5}
    assert calibration.weights == pytest.approx(expected_weights, abs=0.1)
    # Likelier words never lower the confidence.
    features[:, column] -= photos.is_good
    lowered = fit_calibration(replace(photos, features=features))
    assert lowered.weights["content words"] == 0


def test_confidence_knows_what_kind_of_photos_has_good_captions() -> None:
    photos = assessment_of_two_sets()
    better = np.random.default_rng(1).random(len(photos.data_sets)) < 0.5
    photos = replace(photos, is_good=photos.is_good | (better & (photos.data_sets == 1)))
    reports = CalibrationReport.across_halves(photos)
    for report in reports:
        assert report.captions.error < 0.05
        assert report.naming.error < 0.05
    assert len(reports) == 3  # of all photos, and of each data set


def test_a_calibration_is_unsure_of_what_is_like_no_photo() -> None:
    photos = assessment_of_two_sets()
    patterns = np.random.default_rng(1).normal((0, 10), 1, (50, 2))
    before, after = fit_calibration(photos), fit_calibration(photos, patterns=patterns)
    photo_vectors = torch.from_numpy(photos.vectors)[:, None]
    pattern_vectors = torch.from_numpy(patterns)[:, None]
    assert (
        before.photo_kind(pattern_vectors).mean()
        > 0.5
        > 0.3
        > after.photo_kind(pattern_vectors).mean()
    )
    assert after.photo_kind(photo_vectors).mean() == pytest.approx(photos.is_good.mean(), abs=0.02)


def test_two_kinds_of_photos_with_other_naming_rates_get_both() -> None:
    photos, random = assessment_of_two_sets(), np.random.default_rng(1)
    # Of one kind of photos nearly everything is named.
    rates = np.where(photos.data_sets == 1, 0.8, 0.0)
    is_word_named = [
        is_named | (random.random(2) < rate)
        for is_named, rate in zip(photos.is_word_named, rates, strict=True)
    ]
    good = photos.is_good | (random.random(len(rates)) < rates)
    photos = replace(photos, is_word_named=is_word_named, is_good=good)
    for report in CalibrationReport.across_halves(photos):
        assert report.naming.probabilities.mean() == pytest.approx(
            report.naming.outcomes.mean(), abs=0.05
        )
    shares = []
    for number in (0, 1):
        data_set = photos.subset(photos.data_sets == number)
        shares.append(np.concatenate(data_set.is_word_named).mean())
    assert shares[1] > shares[0] + 0.2


def test_a_small_data_set_sets_the_temperature_as_a_large_one() -> None:
    photos, random = assessment_of_two_sets(), np.random.default_rng(1)
    rates = np.where(photos.data_sets == 0, 1.0, 0.7)
    is_top_right = [
        is_right & (random.random(3) < rate)
        for is_right, rate in zip(photos.is_top_right, rates, strict=True)
    ]
    photos = replace(photos, is_top_right=is_top_right)
    unequal = photos.subset((photos.data_sets == 0) | (np.arange(4000) % 5 == 0))
    temperature = fit_calibration(photos).temperature
    assert fit_calibration(unequal).temperature == pytest.approx(temperature, rel=0.06)  # a step
    as_one = replace(unequal, data_sets=np.zeros_like(unequal.data_sets))
    assert fit_calibration(as_one).temperature < 0.88 * temperature


def test_no_photos_leave_the_start_as_it_is() -> None:
    start, none = fit_calibration(assessment_of_two_sets()), np.zeros(4000, dtype=bool)
    assert fit_calibration(assessment().subset(none), start) == start
    assert fit_calibration(assessment().subset(none)) == UNCALIBRATED


@pytest.mark.parametrize("good", [True, False])
def test_twelve_photos_of_one_outcome_make_no_others_certain(good: bool) -> None:
    few = replace(assessment(12), is_good=np.full(12, good))
    confidence = fit_calibration(few).confidence(torch.from_numpy(assessment().features))
    assert ((confidence > 0.1) & (confidence < 0.9)).all()
    assert ((confidence > 0.5) == good).all()


@pytest.mark.parametrize("of_sets", [assessment, assessment_of_two_sets])
def test_twelve_photos_move_the_confidence_in_others_little(of_sets: Callable[..., Any]) -> None:
    start, fresh = fit_calibration(assessment_of_two_sets()), of_sets(seed=100)
    before = CalibrationReport.of((fresh, start)).captions.probabilities
    moved = []
    for seed in range(8):
        few = fit_calibration(of_sets(12, seed=seed), start)
        after = CalibrationReport.of((fresh, few)).captions.probabilities
        moved.append(abs(after - before).mean())
    assert np.mean(moved) < 0.15


@pytest.mark.parametrize("images", quick_ones((5, 14, 40), lambda images: images == 14))
def test_a_few_photos_calibrate_better_than_their_share(images: int) -> None:
    # Of photos with fewer good captions.
    start = replace(fit_calibration(assessment(seed=1)), bias=-0.7)
    fresh, losses = assessment(seed=2), []
    features, good = torch.from_numpy(fresh.features), fresh.is_good
    for seed in range(10, 30):
        few = assessment(images, seed=seed)
        shrunk = fit_calibration(few, start).confidence(features).numpy()
        free = fit_calibration(few).confidence(features).numpy()
        share = (few.is_good.sum() + 0.5) / (images + 1)
        losses.append([-np.log(np.where(good, p, 1 - p)).mean() for p in (shrunk, free, share)])
    with_start, without, constant = np.mean(losses, axis=0)
    assert with_start < without - 0.02
    assert without < constant + 0.005


def test_a_start_that_knows_kinds_of_photos_is_moved_little_by_few() -> None:
    def of_unknown_kind(photos: Assessment) -> Assessment:
        features = photos.features.copy()
        features[:, -1] = np.nan  # the calibration itself knows the kind
        return replace(photos, features=features)

    start = fit_calibration(assessment_of_two_sets(16_000))
    photos = of_unknown_kind(assessment(16_000))
    features, errors = torch.from_numpy(photos.features), []
    assert Reliability(start.confidence(features).numpy(), photos.is_good).error < 0.02
    for seed in range(10, 30):
        calibration = fit_calibration(of_unknown_kind(assessment(14, seed)), start)
        errors.append(Reliability(calibration.confidence(features).numpy(), photos.is_good).error)
    assert np.mean(errors) < 0.1


def test_many_photos_calibrate_as_if_there_were_no_start() -> None:
    start = Calibration(1.0, ZEROS, ZEROS | {"mean entropy": -1.0}, -2.0)
    calibration, plain = fit_calibration(assessment(), start), fit_calibration(assessment())
    assert calibration.weights == pytest.approx(plain.weights, abs=0.05)
    assert calibration.bias == pytest.approx(plain.bias, abs=0.05)


def test_calibrated_probabilities_come_true_as_often_as_they_say() -> None:
    [report] = CalibrationReport.across_halves(assessment())
    assert report.captions.error < 0.03
    assert report.words.error < 0.03
    assert len(report.captions.outcomes) == 4000
    wrong = CalibrationReport.of(
        (assessment(seed=1), Calibration(0.4, ZEROS, dict.fromkeys(FEATURES, 3.0), 0.0))
    )
    assert wrong.captions.error > 0.1
    assert wrong.words.error > 0.1


def test_the_error_and_the_risk_are_those_worked_out_by_hand() -> None:
    probabilities = np.array([0.15, 0.15, 0.95, 1.0])
    reliability = Reliability(probabilities, np.array([True, False, True, False]))
    assert reliability.error == pytest.approx((2 * abs(0.15 - 0.5) + 2 * abs(0.975 - 0.5)) / 4)
    assert reliability.risks.tolist() == pytest.approx([1.0, 0.5, 1 / 3, 0.5])
    area, best, random = reliability.areas
    assert area == pytest.approx((1 + 0.5 + 1 / 3 + 0.5) / 4)
    assert best == pytest.approx((0 + 0 + 1 / 3 + 0.5) / 4)
    assert random == 0.5
