from typing import Any

import numpy as np
import pytest
from pycocotools import mask as run_length

from captioning.data.records import ImageObject
from captioning.errors import InputError
from captioning.evaluation.grounding.targets import Area, Target, cell_edges, decoded_mask

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


def target(*objects: ImageObject, offset: tuple[float, float] = (0.0, 0.0)) -> Target:
    found = Target.of(objects, size=SIZE, crop=CROP, grid=GRID, offset=offset)
    assert found is not None
    return found


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
    found = target(dog(30, 10, 20, 30))
    # Centres at x 30, then 50: just outside.
    assert np.argwhere(found.coverage.has_box_at_centre).tolist() == [[0, 0], [1, 0]]
    assert not found.covers_middle


def test_cells_with_an_offset_look_where_moved_boxes_are() -> None:
    moved = target(dog(55, 25, 20, 30), offset=(0.25, 0.5))
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
    ("thing", "is_there"),
    [
        (dog(0, 0, 20, 80), False),
        (dog(0, 0, 21, 80), True),
        (dog(0, 0, 40, 60, mask=[[0, 0, 15, 0, 0, 60]]), False),  # by its mask, not its box alone
    ],
)
def test_an_object_outside_the_crop_is_not_there(thing: ImageObject, is_there: bool) -> None:
    assert (Target.of([thing], size=SIZE, crop=CROP, grid=GRID) is not None) == is_there


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
