import dataclasses
from pathlib import Path

import numpy as np
import pytest

from captioning.data.records import ImageObject
from captioning.evaluation.grounding import GroundedMention, Mention
from captioning.evaluation.grounding.areas import Place
from captioning.evaluation.grounding.mentions import (
    GAUSSIAN,
    IN_BOX,
    IN_MASK,
    KINDS,
    MEASURES,
    MODEL,
    POINTING,
    UNIFORM,
    gaussian,
    pointing,
    uniform,
)

SIZE = (100, 80)
CROP = (10.0, 0.0, 80.0, 80.0)
Box = tuple[float, float, float, float]


def grounded(weights: np.ndarray, *boxes: tuple[float, ...]) -> GroundedMention:
    """A mention of dogs, all of which have masks that fill half of their boxes."""
    dogs = [
        ImageObject("dog", (x, y, w, h), [[x, y, x + w / 2, y, x + w / 2, y + h, x, y + h]])
        for x, y, w, h in (map(float, box) for box in boxes)
    ]
    place = Place.of(dogs, SIZE, CROP, weights.shape)
    assert place is not None
    return GroundedMention(
        1, Path("1.jpg"), Mention("dog", "dog", 1, 2), weights, place, CROP, SIZE
    )


def some_weights(seed: int = 0, grid: tuple[int, int] = (4, 4)) -> np.ndarray:
    weights = np.random.default_rng(seed).random(grid)
    return weights / weights.sum()


def mirrored(box: Box) -> Box:
    return SIZE[0] - box[0] - box[2], box[1], box[2], box[3]


def test_a_map_on_the_box_alone_has_all_its_mass_inside() -> None:
    weights = np.zeros((4, 4))
    weights[1:3, 2:] = 0.25
    scores = grounded(weights, (50, 20, 40, 40)).scores[MODEL]
    assert scores == {POINTING: 1, IN_BOX: pytest.approx(1), IN_MASK: pytest.approx(0.5)}


@pytest.mark.parametrize("grid", [(4, 4), (7, 7)])
def test_a_uniform_maps_mass_is_the_boxs_share_of_the_crop(grid: tuple[int, int]) -> None:
    found = grounded(uniform(grid), (33, 7, 31, 43), (60, 40, 90, 11)).scores
    area = (31 * 43 + (90 - 60) * 11 - (64 - 60) * (50 - 40)) / 80**2
    assert found[MODEL][IN_BOX] == pytest.approx(area)
    assert found[MODEL] == found[UNIFORM]


def test_tied_maxima_score_their_share_that_is_inside() -> None:
    weights = np.array([[0.4, 0.1], [0.1, 0.4]])
    assert pointing(weights, np.array([[True, True], [False, False]])) == 0.5


def test_the_gaussian_is_centred_and_falls_by_its_sigma() -> None:
    weights = gaussian((5, 5))
    assert weights.sum() == pytest.approx(1)
    np.testing.assert_array_equal(weights, weights[::-1, ::-1].T)
    # From the middle cell to the next one is a fifth of the side, and sigma a quarter.
    assert weights[2, 3] / weights[2, 2] == pytest.approx(np.exp(-0.5 * (0.2 / 0.25) ** 2))


def test_the_gaussian_of_an_even_grid_has_four_equal_maxima() -> None:
    weights = gaussian((8, 8))
    assert np.argwhere(weights == weights.max()).tolist() == [[3, 3], [3, 4], [4, 3], [4, 4]]


@pytest.mark.parametrize("seed", range(2))
def test_a_mirrored_photo_with_a_mirrored_map_scores_the_same(seed: int) -> None:
    boxes = [(22.0, 5.0, 31.0, 44.0), (41.0, 31.0, 45.0, 21.0)]
    weights = some_weights(seed)
    found = grounded(weights, *boxes).scores
    # The masks of `grounded` lie in the left halves of boxes, so they are left aside here.
    other = grounded(weights[:, ::-1].copy(), *map(mirrored, boxes)).scores
    for source in (MODEL, UNIFORM, GAUSSIAN):
        for measure in MEASURES[:2]:
            assert found[source][measure] == pytest.approx(other[source][measure])


def test_scores_are_of_any_instance_of_the_category() -> None:
    weights = np.array([[0.7, 0.0], [0.1, 0.2]])
    assert grounded(weights, (10, 0, 40, 40), (50, 40, 40, 40)).scores[MODEL] == {
        POINTING: 1,
        IN_BOX: pytest.approx(0.9),
        IN_MASK: pytest.approx(0.45),
    }


def test_the_mass_in_no_mask_is_not_a_number() -> None:
    found = grounded(some_weights(), (50, 20, 40, 40))
    unmasked = dataclasses.replace(found.place, in_mask=None)
    assert np.isnan(dataclasses.replace(found, place=unmasked).scores[MODEL][IN_MASK])


def test_kinds_are_by_the_middle_and_the_size_of_the_boxes() -> None:
    # By hand: the crop's middle is at (50, 40), its side 80.
    corner = grounded(some_weights(), (10, 0, 20, 20))
    assert corner.size_share == pytest.approx(1 / 16)
    pair = grounded(some_weights(), (10, 0, 20, 20), (70, 60, 20, 20))
    assert not pair.covers_middle
    whole = grounded(some_weights(), (0, 0, 100, 80))
    assert whole.size_share == 1
    kinds = {"not in the middle", "medium"}
    assert {name for name, kind in KINDS.items() if kind(corner)} == kinds
    assert {name for name, kind in KINDS.items() if kind(whole)} == {"large, from 1/4"}
