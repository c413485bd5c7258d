import numpy as np
import pytest

from captioning.evaluation.grounding.boxes import box_of, largest_overlap

CROP = (10.0, 20.0, 40.0, 80.0)


def test_the_box_holds_what_hangs_together_with_the_maximum() -> None:
    # By hand: cells of 10 x 20 pixels; the other large weight touches only at a corner.
    weights = np.array(
        [[0.0, 0.4, 0.0, 0.0], [0.0, 0.3, 0.2, 0.0], [0.0, 0.1, 0.0, 0.35], [0, 0, 0, 0]]
    )
    assert box_of(weights, CROP) == (20.0, 20.0, 20.0, 40.0)


def test_an_even_map_has_the_whole_crop_as_its_box() -> None:
    assert box_of(np.full((3, 5), 1 / 15), CROP) == pytest.approx(CROP)


def test_overlap_is_intersection_over_union_of_what_the_crop_shows() -> None:
    box = (10.0, 20.0, 20.0, 20.0)
    assert largest_overlap(box, [box], CROP) == 1
    # 10 x 20 of 30 x 20 in common; the object's left half lies beyond the crop.
    assert largest_overlap(box, [(-10.0, 20.0, 30.0, 20.0)], CROP) == pytest.approx(0.5)
    assert largest_overlap(box, [(20.0, 20.0, 20.0, 20.0), (90.0, 0.0, 5.0, 5.0)], CROP) == (
        pytest.approx(1 / 3)
    )


def test_nothing_to_see_has_no_overlap() -> None:
    assert largest_overlap((10.0, 20.0, 5.0, 5.0), [(60.0, 20.0, 5.0, 5.0)], CROP) == 0
