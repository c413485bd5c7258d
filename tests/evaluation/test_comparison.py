"""The test of two systems' difference, beside SciPy's and sacreBLEU's on the same captions."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sacrebleu
from numpy.typing import NDArray
from sacrebleu.significance import PairedTest
from scipy import stats

from captioning.evaluation.comparison import (
    Compared,
    compared,
    comparison_table,
    share_as_extreme,
)
from captioning.metrics import scores
from captioning.metrics.bleu import bleu_scores
from captioning.metrics.cider import cider_scores
from captioning.metrics.rouge import rouge_scores
from captioning.metrics.scores import Scores

IMAGES = 120
WORDS = [f"word{number}" for number in range(18)]
SCORERS: list[Callable[..., Scores]] = [bleu_scores, rouge_scores, cider_scores]

Captions = list[list[str]]


def varied(rng: random.Random, words: list[str], rate: float) -> list[str]:
    """The words, of which a share is replaced by others."""
    return [word if rng.random() > rate else rng.choice(WORDS) for word in words]


@pytest.fixture(scope="module")
def world() -> dict[float, Any]:
    """References of each image, and captions with words wrong at several rates."""
    rng = random.Random(0)
    truth = [[rng.choice(WORDS) for _ in range(rng.randint(7, 12))] for _ in range(IMAGES)]
    found: dict[float, Any] = {0.0: [[varied(rng, each, 0.25) for _ in range(5)] for each in truth]}
    for rate in (0.35, 0.40, 0.41, 0.6, 0.48, 0.47):
        found[rate] = [varied(rng, each, rate) for each in truth]
    return found


def compare(
    world: dict[float, Any], first: float, second: float, **options: Any
) -> dict[str, Compared]:
    one, other = (
        Scores.joined([score(world[rate], world[0.0]) for score in SCORERS])
        for rate in (first, second)
    )
    return compared(one, other, **options)


def tolerance(p: float, *draws: int) -> float:
    """Five standard errors of the difference of two p-values by so many draws."""
    return 5 * float(np.sqrt(sum(max(p * (1 - p), 1e-4) / count for count in draws)))


def sacrebleus(world: dict[float, Any], rates: tuple[float, float]) -> Any:
    """SacreBLEU's result of BLEU-4 for the second system, by its paired bootstrap."""
    systems = [(str(rate), [" ".join(words) for words in world[rate]]) for rate in rates]
    streams = [[" ".join(several[n]) for several in world[0.0]] for n in range(5)]
    metric = sacrebleu.BLEU(tokenize="none", smooth_method="none", force=True)
    test = PairedTest(systems, {"BLEU": metric}, streams, "bs", n_samples=10_000)
    _, scores = test()
    return scores["BLEU"][1]


@pytest.mark.parametrize("rates", [(0.40, 0.35), (0.41, 0.35), (0.47, 0.35), (0.48, 0.40)])
def test_p_values_of_bleu_are_sacrebleus(
    world: dict[float, Any], rates: tuple[float, float]
) -> None:
    own = compare(world, *rates, samples=10_000)["BLEU-4"]
    expected = sacrebleus(world, rates)
    assert own.second == pytest.approx(expected.score / 100, abs=1e-8)
    assert own.p_value == pytest.approx(
        expected.p_value, abs=tolerance(own.p_value, 10_000, 10_000)
    )


def images_of(world: dict[float, Any], rate: float) -> NDArray[np.float64]:
    return cider_scores(world[rate], world[0.0]).images["CIDEr"]


def gain(one: NDArray[Any], other: NDArray[Any], axis: int) -> NDArray[Any]:
    return np.asarray(np.mean(other - one, axis=axis))


def test_intervals_of_images_are_scipys_paired_bootstrap(world: dict[float, Any]) -> None:
    pytest.importorskip("scipy", "1.15")  # the first with the argument rng
    options: dict[str, Any] = {"paired": True, "method": "percentile", "n_resamples": 10_000}
    images, rng = [images_of(world, rate) for rate in (0.40, 0.35)], np.random.default_rng(1)
    expected = stats.bootstrap(images, gain, vectorized=True, rng=rng, **options)
    own = compare(world, 0.40, 0.35, samples=10_000)["CIDEr"].interval
    bounds, error = expected.confidence_interval, float(expected.standard_error)
    assert own == pytest.approx(tuple(bounds), abs=0.1 * error)


def test_equal_systems_have_a_p_value_of_one(world: dict[float, Any]) -> None:
    for each in compare(world, 0.40, 0.40).values():
        assert each.p_value == 1
        assert each.interval == (0, 0)


def test_blocks_do_not_change_the_results(
    world: dict[float, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = compare(world, 0.40, 0.35, samples=50)
    monkeypatch.setattr(scores, "BLOCK", 7 * IMAGES)
    for name, other in compare(world, 0.40, 0.35, samples=50).items():
        assert whole[name].interval == pytest.approx(other.interval)
        assert whole[name].p_value == other.p_value


def test_five_per_cent_of_equally_good_systems_have_half_that_p_value() -> None:
    rng, found = np.random.default_rng(3), []
    for seed in range(300):
        first, second = (Scores.of("score", rng.normal(size=40)) for _ in range(2))
        each = compared(first, second, samples=199, seed=seed)["score"]
        found.append(each.p_value)
    assert 0.02 < np.mean(np.array(found) <= 0.025) < 0.085


def test_p_values_worked_out_by_hand() -> None:
    assert share_as_extreme(1.0, np.array([-1.0, 1.0, 0.0, 0.0])) == (1 + 1) / (4 + 1)
    assert share_as_extreme(-2.0, np.array([2.0, 2.0, 1.0, 0.0])) == (2 + 1) / (4 + 1)


NOTE = "A: a.json; B: b.json; 2 images"
TABLE = [
    "             A       B    B - A       95 % interval  p bootstrap",
    "BLEU-1  0.2500  0.1250  -0.1250  -0.2500 to +0.5000       0.2500",
    NOTE,
]


def test_the_table_for_people() -> None:
    found = {"BLEU-1": Compared(0.25, 0.125, (-0.25, 0.5), 0.25)}
    assert comparison_table(found, NOTE).splitlines() == TABLE
