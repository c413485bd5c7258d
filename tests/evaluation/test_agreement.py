import math
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.stats import kendalltau

from captioning.evaluation.agreement import Agreement, resampled_taus
from captioning.evaluation.agreement_plot import save
from captioning.metrics.scores import resamples


def agreement(scores: list[float], ratings: list[float], images: list[int]) -> Agreement:
    return Agreement.of(
        {"score": np.array(scores, dtype=np.float64)},
        np.array(ratings, dtype=np.float64),
        np.array(images),
        pairs=len(scores),
    )


def test_tau_is_that_worked_out_by_hand() -> None:
    # Of the 6 pairs, 3 are concordant and none is discordant; 1 is tied in scores, 2 in ratings.
    taus = agreement([1, 2, 2, 3], [1, 1, 2, 2], [0, 1, 2, 3]).taus["score"]
    assert taus["b"].value == pytest.approx(3 / math.sqrt((6 - 1) * (6 - 2)))
    assert taus["c"].value == pytest.approx(2 * 3 / (4**2 * (2 - 1) / 2))


def test_a_score_that_orders_as_people_do_has_a_tau_of_one_in_every_resample() -> None:
    tau = agreement([1, 2, 3, 4] * 5, [1, 2, 3, 4] * 5, [*range(20)]).taus["score"]["b"]
    assert tau.value == pytest.approx(1)
    assert tau.interval == pytest.approx((1, 1))


@pytest.mark.parametrize("block", [70, 4_000_000])
def test_resampled_correlations_are_scipy_s_of_the_resamples(block: int) -> None:
    rng = np.random.default_rng(0)
    images = np.sort(np.concatenate([np.arange(12), rng.integers(0, 12, 48)]))
    scores, ratings = rng.integers(0, 9, 60), rng.integers(0, 4, 60)
    drawn = np.concatenate(list(resamples(12, seed=1)))[:20]
    found = resampled_taus(scores, ratings, images, drawn, block)
    for number, counts in enumerate(drawn):
        which = np.repeat(np.arange(60), counts[images])
        for variant, values in found.items():
            expected = kendalltau(scores[which], ratings[which], variant=variant).statistic
            assert values[number] == pytest.approx(expected, abs=1e-12)


def test_images_in_any_order_have_the_same_intervals() -> None:
    rng = np.random.default_rng(0)
    images = np.repeat(np.arange(10), 4)
    scores, ratings = rng.normal(size=40), rng.integers(1, 5, 40).astype(float)
    mixed = rng.permutation(40)
    first = Agreement.of({"s": scores}, ratings, images, 40)
    second = Agreement.of({"s": scores[mixed]}, ratings[mixed], images[mixed], 40)
    assert first.taus["s"]["b"].interval == pytest.approx(second.taus["s"]["b"].interval)
    assert first.taus["s"]["c"].value == pytest.approx(second.taus["s"]["c"].value)


def test_a_score_that_tells_no_captions_apart_has_no_correlation() -> None:
    found = agreement([5, 5, 5], [1, 2, 3], [0, 1, 2])
    assert found.as_json()["scores"]["score"]["tau-b"] == {"value": None}
    assert found.table().splitlines()[1].split() == ["score", "none", "none"]


def test_one_image_has_the_correlation_itself_for_its_interval() -> None:
    tau = agreement([1, 2, 3], [1, 3, 2], [0, 0, 0]).taus["score"]["b"]
    assert tau.value == pytest.approx(1 / 3)
    assert tau.interval == pytest.approx((1 / 3, 1 / 3))


def test_the_picture_shows_every_score_and_leaves_out_what_is_not_defined(tmp_path: Path) -> None:
    found = agreement([1, 2, 3, 5], [1, 3, 2, 4], [0, 1, 2, 3])
    nothing = agreement([5, 5, 5, 5], [1, 3, 2, 4], [0, 1, 2, 3])
    save(found, tmp_path / "some.png")
    save(nothing, tmp_path / "none.png")
    with Image.open(tmp_path / "some.png") as some, Image.open(tmp_path / "none.png") as none:
        assert some.size == none.size
        colours = [
            len(np.unique(np.asarray(picture.convert("RGB")).reshape(-1, 3), axis=0))
            for picture in (some, none)
        ]
    assert colours[0] > colours[1]
