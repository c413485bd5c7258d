import dataclasses
from pathlib import Path

import numpy as np
import pytest

from captioning.data.records import ImageObject
from captioning.evaluation.grounding import Look, Mention
from captioning.evaluation.grounding.areas import Place
from captioning.evaluation.grounding.looks import (
    GAUSSIAN,
    IN_BOX,
    IN_MASK,
    KINDS,
    MEASURES,
    MODEL,
    POINTING,
    UNIFORM,
    box_of,
    gaussian,
    largest_overlap,
    pointing,
    uniform,
)

SIZE = (100, 80)
CROP = (10.0, 0.0, 80.0, 80.0)
SEEN = (10.0, 20.0, 40.0, 80.0)
Box = tuple[float, float, float, float]


def look(weights: np.ndarray, *boxes: tuple[float, ...]) -> Look:
    """A look at dogs, all of which have masks that fill half of their boxes."""
    dogs = [
        ImageObject("dog", (x, y, w, h), [[x, y, x + w / 2, y, x + w / 2, y + h, x, y + h]])
        for x, y, w, h in (map(float, box) for box in boxes)
    ]
    place = Place.of(dogs, SIZE, CROP, weights.shape)
    assert place is not None
    return Look(1, Path("1.jpg"), Mention("dog", "dog", 1, 2), weights, place, CROP, SIZE)


def some_weights(seed: int = 0, grid: tuple[int, int] = (4, 4)) -> np.ndarray:
    weights = np.random.default_rng(seed).random(grid)
    return weights / weights.sum()


def mirrored(box: Box) -> Box:
    return SIZE[0] - box[0] - box[2], box[1], box[2], box[3]


def test_attention_on_the_boxs_cells_alone_points_inside_with_all_its_mass() -> None:
    weights = np.zeros((4, 4))
    weights[1:3, 2:] = 0.25
    scores = look(weights, (50, 20, 40, 40)).scores[MODEL]
    assert scores == {POINTING: 1, IN_BOX: pytest.approx(1), IN_MASK: pytest.approx(0.5)}


def test_attention_beside_the_box_scores_nothing() -> None:
    weights = np.zeros((4, 4))
    weights[0, 0] = 1
    assert set(look(weights, (50, 20, 40, 40)).scores[MODEL].values()) == {0}


@pytest.mark.parametrize("grid", [(4, 4), (7, 7)])
def test_the_mass_of_uniform_attention_is_the_boxs_share_of_the_crop(grid: tuple[int, int]) -> None:
    found = look(uniform(grid), (33, 7, 31, 43), (60, 40, 90, 11)).scores
    area = (31 * 43 + (90 - 60) * 11 - (64 - 60) * (50 - 40)) / 80**2
    assert found[MODEL][IN_BOX] == pytest.approx(area)
    assert found[MODEL] == found[UNIFORM]


def test_tied_maxima_score_their_share_that_is_inside() -> None:
    weights = np.array([[0.4, 0.1], [0.1, 0.4]])
    assert pointing(weights, np.array([[True, True], [False, False]])) == 0.5


def test_uniform_attention_points_at_the_share_of_centres_inside() -> None:
    assert look(uniform((4, 4)), (10, 0, 40, 25)).scores[UNIFORM][POINTING] == 2 / 16


def test_the_gaussian_is_centred_and_falls_by_its_sigma() -> None:
    weights = gaussian((5, 5))
    assert weights.sum() == pytest.approx(1)
    np.testing.assert_array_equal(weights, weights[::-1, ::-1].T)
    # From the middle cell to the next one is a fifth of the side, and sigma a quarter.
    assert weights[2, 3] / weights[2, 2] == pytest.approx(np.exp(-0.5 * (0.2 / 0.25) ** 2))


def test_the_gaussian_of_an_even_grid_points_at_the_four_middle_cells_alike() -> None:
    weights = gaussian((8, 8))
    assert np.argwhere(weights == weights.max()).tolist() == [[3, 3], [3, 4], [4, 3], [4, 4]]


@pytest.mark.parametrize("seed", range(2))
def test_a_mirrored_photo_with_mirrored_attention_has_the_same_scores(seed: int) -> None:
    boxes = [(22.0, 5.0, 31.0, 44.0), (41.0, 31.0, 45.0, 21.0)]
    weights = some_weights(seed)
    found = look(weights, *boxes).scores
    # The masks of `look` lie in the left halves of boxes, so they are left aside here.
    other = look(weights[:, ::-1].copy(), *map(mirrored, boxes)).scores
    for source in (MODEL, UNIFORM, GAUSSIAN):
        for measure in MEASURES[:2]:
            assert found[source][measure] == pytest.approx(other[source][measure])


def test_scores_are_of_any_instance_of_the_category() -> None:
    weights = np.array([[0.7, 0.0], [0.1, 0.2]])
    assert look(weights, (10, 0, 40, 40), (50, 40, 40, 40)).scores[MODEL] == {
        POINTING: 1,
        IN_BOX: pytest.approx(0.9),
        IN_MASK: pytest.approx(0.45),
    }


def test_the_mass_in_no_mask_is_not_a_number() -> None:
    found = look(some_weights(), (50, 20, 40, 40))
    unmasked = dataclasses.replace(found.place, in_mask=None)
    assert np.isnan(dataclasses.replace(found, place=unmasked).scores[MODEL][IN_MASK])


def test_a_box_that_fits_is_localised_and_one_that_does_not_is_not() -> None:
    weights = np.zeros((4, 4))
    weights[1:3, 2:] = 0.25  # 50 to 90 and 20 to 60 in pixels of the photo
    assert look(weights, (50, 20, 40, 40)).localised == {MODEL: 1, UNIFORM: 0, GAUSSIAN: 0}
    assert look(weights, (50, 20, 40, 19)).localised[MODEL] == 0
    assert look(weights, (0, 0, 100, 80)).localised[UNIFORM] == 1


def test_kinds_are_by_the_middle_and_the_size_of_the_boxes() -> None:
    # By hand: the crop's middle is at (50, 40), its side 80.
    corner = look(some_weights(), (10, 0, 20, 20))
    assert corner.size_share == pytest.approx(1 / 16)
    pair = look(some_weights(), (10, 0, 20, 20), (70, 60, 20, 20))
    assert not pair.covers_middle
    whole = look(some_weights(), (0, 0, 100, 80))
    assert whole.size_share == 1
    kinds = {"not in the middle", "medium"}
    assert {name for name, kind in KINDS.items() if kind(corner)} == kinds
    assert {name for name, kind in KINDS.items() if kind(whole)} == {"large, from 1/4"}


def test_the_box_holds_what_hangs_together_with_the_maximum() -> None:
    # By hand: cells of 10 x 20 pixels; the other large weight touches only at a corner.
    weights = np.array(
        [[0.0, 0.4, 0.0, 0.0], [0.0, 0.3, 0.2, 0.0], [0.0, 0.1, 0.0, 0.35], [0, 0, 0, 0]]
    )
    assert box_of(weights, SEEN) == (20.0, 20.0, 20.0, 40.0)


def test_an_even_map_has_the_whole_crop_as_its_box() -> None:
    assert box_of(np.full((3, 5), 1 / 15), SEEN) == pytest.approx(SEEN)


def test_overlap_is_intersection_over_union_of_what_the_crop_shows() -> None:
    box = (10.0, 20.0, 20.0, 20.0)
    assert largest_overlap(box, [box], SEEN) == 1
    # 10 x 20 of 30 x 20 in common; the object's left half lies beyond the crop.
    assert largest_overlap(box, [(-10.0, 20.0, 30.0, 20.0)], SEEN) == pytest.approx(0.5)
    assert largest_overlap(box, [(20.0, 20.0, 20.0, 20.0), (90.0, 0.0, 5.0, 5.0)], SEEN) == (
        pytest.approx(1 / 3)
    )


def test_nothing_to_see_has_no_overlap() -> None:
    assert largest_overlap((10.0, 20.0, 5.0, 5.0), [(60.0, 20.0, 5.0, 5.0)], SEEN) == 0
