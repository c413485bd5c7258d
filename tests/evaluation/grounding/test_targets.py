from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pycocotools import mask as run_length

from captioning.data.records import ImageObject
from captioning.errors import InputError
from captioning.evaluation.grounding import GroundedMention, Mention
from captioning.evaluation.grounding.targets import (
    MEASURES,
    OBJECT_GROUPS,
    SOURCES,
    Area,
    Target,
    cell_edges,
    decoded_mask,
    gaussian,
    map_values,
    score_name,
)

CROP = (20.0, 0.0, 80.0, 80.0)  # the middle of a photo of 120 x 80
SIZE = (120, 80)
GRID = (4, 4)  # of cells of 20 x 20 pixels
CELLS = cell_edges(CROP, GRID)
PIXELS = 120 * 80

RECTANGLE = [30, 10, 50, 10, 50, 40, 30, 40]  # a polygon: corners of the box 30, 10, 20, 30


def rectangle_mask() -> np.ndarray:
    mask = np.zeros((80, 120), dtype=np.uint8, order="F")
    mask[10:40, 30:50] = 1
    return mask


def dog(*box: float, mask: Any = None) -> ImageObject:
    left, top, width, height = map(float, box)
    return ImageObject("dog", (left, top, width, height), mask)


def area(*boxes: tuple[float, ...]) -> Area:
    return Area.of_boxes([dog(*box).box for box in boxes])


def target(
    *objects: ImageObject,
    grid: tuple[int, int] = GRID,
    cell_offset: tuple[float, float] = (0.0, 0.0),
) -> Target:
    target = Target.of(objects, size=SIZE, crop=CROP, grid=grid, cell_offset=cell_offset)
    assert target is not None
    return target


def test_shares_of_cells_are_what_the_box_covers_of_them() -> None:
    shares = area((30, 10, 20, 30)).shares(CELLS)
    expected = np.zeros((4, 4))
    expected[:2, :2] = [[0.25, 0.25], [0.5, 0.5]]
    np.testing.assert_allclose(shares, expected, atol=1e-12)


def test_where_boxes_overlap_their_area_counts_once() -> None:
    twice = area((30, 10, 20, 30), (35, 5, 30, 20), (30, 10, 20, 30))
    painted = np.zeros((80, 120), dtype=bool)
    painted[10:40, 30:50] = painted[5:25, 35:65] = True
    np.testing.assert_allclose(twice.shares(CELLS), Area.of_mask(painted).shares(CELLS), atol=1e-12)


def test_a_cell_is_held_where_its_centre_is_inside() -> None:
    left = target(dog(30, 10, 20, 30))
    # Centres at x 30, then 50: just outside.
    assert np.argwhere(left.coverage.has_box_at_centre).tolist() == [[0, 0], [1, 0]]
    assert not left.covers_middle


def test_cells_with_an_offset_look_where_moved_boxes_are() -> None:
    moved = target(dog(55, 25, 20, 30), cell_offset=(0.25, 0.5))
    still = target(dog(45, 20, 20, 30))
    np.testing.assert_allclose(moved.coverage.box_shares, still.coverage.box_shares, atol=1e-12)
    np.testing.assert_array_equal(
        moved.coverage.has_box_at_centre, still.coverage.has_box_at_centre
    )
    unmoved = area((55, 25, 20, 30)).shares(CELLS)
    np.testing.assert_array_equal(moved.unshifted_coverage.box_shares, unmoved)


def test_the_outermost_cells_reach_to_the_edges_of_the_crop() -> None:
    shares = area((20, 0, 100, 80)).shares(cell_edges(CROP, GRID, (0.7, -0.7)))
    np.testing.assert_allclose(shares, 1)


@pytest.mark.parametrize(
    "segmentation",
    [
        [RECTANGLE],
        [[30, 10, 40, 10, 40, 40, 30, 40], [40, 10, 50, 10, 50, 40, 40, 40]],
        run_length.encode(rectangle_mask()),
        {"size": [80, 120], "counts": [30 * 80 + 10, *([30, 50] * 20)[:-1], 70 * 80 + 40]},
    ],
    ids=["polygon", "two polygons", "compressed lengths", "lengths"],
)
def test_all_of_cocos_ways_to_write_a_mask_agree(segmentation: Any) -> None:
    np.testing.assert_array_equal(decoded_mask(segmentation, SIZE), rectangle_mask().astype(bool))


@pytest.mark.parametrize(
    ("image_object", "is_there"),
    [
        (dog(0, 0, 20, 80), False),
        (dog(0, 0, 21, 80), True),
        (dog(0, 0, 40, 60, mask=[[0, 0, 15, 0, 0, 60]]), False),  # by its mask, not its box alone
    ],
)
def test_an_object_outside_the_crop_is_not_there(image_object: ImageObject, is_there: bool) -> None:
    assert (Target.of([image_object], size=SIZE, crop=CROP, grid=GRID) is not None) == is_there


def test_mass_in_masks_needs_a_mask_of_every_object() -> None:
    masked, other = dog(30, 10, 20, 30, mask=[RECTANGLE]), dog(60, 10, 20, 30)
    alone, together = target(masked), target(masked, other)
    assert alone.coverage.mask_shares is not None
    np.testing.assert_allclose(alone.coverage.mask_shares, alone.coverage.box_shares, atol=1e-12)
    assert together.coverage.mask_shares is None


@pytest.mark.parametrize("seed", range(5))
def test_run_lengths_are_read_as_pycocotools_reads_them(seed: int) -> None:
    generator = np.random.default_rng(seed)
    mask = generator.random((80, 120)) < [0.5, 0.01, 0.99, 0.0, 1.0][seed]
    lengths = run_length.encode(np.asfortranarray(mask.astype(np.uint8)))
    np.testing.assert_array_equal(decoded_mask(lengths, SIZE), mask)
    as_text = {**lengths, "counts": lengths["counts"].decode()}
    np.testing.assert_array_equal(decoded_mask(as_text, SIZE), mask)


MALFORMED: dict[str, Any] = {
    "a size of terabytes": {"size": [1_000_000, 1_000_000], "counts": [10**12]},
    "compressed lengths of terabytes": {"size": [80, 120], "counts": "oooooO1"},
    "lengths short of the size": {"size": [80, 120], "counts": [5]},
    "a length below zero": {"size": [80, 120], "counts": [PIXELS + 5, -5]},
    "compressed lengths below zero": {"size": [80, 120], "counts": "N" * 50},
    "a length that does not end": {"size": [80, 120], "counts": "ooo"},
    "characters that are none": {"size": [80, 120], "counts": "\x00\xff é"},
    "not a number in a polygon": [[float("nan"), 1, 2, 3, 4, 5]],
    "a corner far away": [[10**9, 1, 2, 3, 4, 5]],
    "no polygon": [],
    "text": "segmentation",
}


@pytest.mark.parametrize("mask", MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformed_mask_is_an_input_error(mask: Any) -> None:
    with pytest.raises(InputError):
        decoded_mask(mask, SIZE)


def test_a_polygon_may_leave_the_photo_a_little() -> None:
    assert decoded_mask([[-3.0, -3.0, 130.5, -3.0, 130.5, 90.0, -3.0, 90.0]], SIZE).all()


def masked_dog(*box: float) -> ImageObject:
    """A dog whose mask is the left half of its box."""
    x, y, width, height = box
    return dog(*box, mask=[[x, y, x + width / 2, y, x + width / 2, y + height, x, y + height]])


def values(weights: np.ndarray, *boxes: tuple[float, ...]) -> dict[str, float]:
    rows, columns = weights.shape
    dogs = [masked_dog(*box) for box in boxes]
    return map_values(weights, target(*dogs, grid=(rows, columns)))


@pytest.mark.parametrize(
    ("weights", "boxes", "scores"),
    [
        (np.pad(np.full((2, 2), 0.25), ((1, 1), (2, 0))), [(60, 20, 40, 40)], (1, 1, 0.5)),
        ([[0.7, 0.0], [0.1, 0.2]], [(20, 0, 40, 40), (60, 40, 40, 40)], (1, 0.9, 0.45)),
        ([[0.4, 0.1], [0.1, 0.4]], [(20, 0, 80, 40)], (0.5, 0.5, 0.4)),
    ],
    ids=[
        "all on the box",
        "any instance of the category counts",
        "tied maxima score their share inside",
    ],
)
def test_scores_of_a_map_worked_out_by_hand(
    weights: Any, boxes: list[tuple[float, ...]], scores: tuple[float, ...]
) -> None:
    scores_by_name = values(np.array(weights), *boxes)
    assert [scores_by_name[name] for name in MEASURES] == pytest.approx(scores)


@pytest.mark.parametrize("grid", [(4, 4), (7, 7), (3, 5)])
def test_a_uniform_maps_mass_is_the_boxs_share_of_the_crop(grid: tuple[int, int]) -> None:
    scores = values(np.full(grid, 1 / np.prod(grid)), (43, 7, 31, 43), (70, 40, 90, 11))
    area = (31 * 43 + (90 - 60) * 11 - (64 - 60) * (50 - 40)) / 80**2
    assert scores["mass in box"] == pytest.approx(area)
    for measure in MEASURES:
        assert scores[measure] == scores[score_name(measure, "uniform")]


def test_the_gaussian_is_centred_and_falls_by_its_sigma() -> None:
    weights = gaussian((5, 5))
    assert weights.sum() == pytest.approx(1)
    np.testing.assert_array_equal(weights, weights[::-1, ::-1].T)
    # From the middle cell to the next one is a fifth of the side, and sigma a quarter.
    assert weights[2, 3] / weights[2, 2] == pytest.approx(np.exp(-0.5 * (0.2 / 0.25) ** 2))


@pytest.mark.parametrize("seed", range(2))
def test_a_mirrored_photo_with_a_mirrored_map_scores_the_same(seed: int) -> None:
    boxes = [(32.0, 5.0, 31.0, 44.0), (51.0, 31.0, 45.0, 21.0)]
    mirrored = [(SIZE[0] - x - width, y, width, height) for x, y, width, height in boxes]
    weights = np.random.default_rng(seed).random((4, 4))
    weights /= weights.sum()
    scores, mirrored_scores = values(weights, *boxes), values(weights[:, ::-1].copy(), *mirrored)
    # The masks lie in the left halves of boxes, so mass in mask differs.
    for source in SOURCES:
        for measure in ("pointing", "mass in box"):
            name = score_name(measure, source)
            assert scores[name] == pytest.approx(mirrored_scores[name])


@pytest.mark.parametrize(
    ("boxes", "share", "groups"),
    [
        ([(20, 0, 20, 20)], 1 / 16, {"not in the middle", "medium"}),
        ([(20, 0, 20, 20), (80, 60, 20, 20)], 1 / 8, {"not in the middle", "medium"}),
        ([(10, 0, 100, 80)], 1, {"large, from 1/4"}),
    ],
)
def test_groups_are_by_the_middle_and_the_size_of_the_boxes(
    boxes: list[tuple[float, ...]], share: float, groups: set[str]
) -> None:
    # By hand: the crop's middle is at (60, 40), its side 80.
    dogs = target(*(masked_dog(*box) for box in boxes))
    words = Mention("dog", "dog", 1, 2)
    mention = GroundedMention(1, Path("1.jpg"), 0, words, dogs, gaussian(GRID), {})
    assert mention.size_share == pytest.approx(share)
    assert {name for name, is_in in OBJECT_GROUPS.items() if is_in(mention)} == groups
