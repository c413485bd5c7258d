from typing import Any

import numpy as np
import pytest
from pycocotools import mask as run_length

from captioning.data.records import ImageObject
from captioning.errors import InputError
from captioning.evaluation.grounding.areas import MAX_OBJECTS, Place
from captioning.evaluation.grounding.masks import decoded

SIZE = (120, 80)
PIXELS = 120 * 80


@pytest.mark.parametrize("seed", range(5))
def test_run_lengths_are_read_as_pycocotools_reads_them(seed: int) -> None:
    generator = np.random.default_rng(seed)
    mask = generator.random((80, 120)) < [0.5, 0.01, 0.99, 0.0, 1.0][seed]
    lengths = run_length.encode(np.asfortranarray(mask.astype(np.uint8)))
    np.testing.assert_array_equal(decoded(lengths, SIZE), mask)
    as_text = {**lengths, "counts": lengths["counts"].decode()}
    np.testing.assert_array_equal(decoded(as_text, SIZE), mask)


HOSTILE: dict[str, Any] = {
    "a size of terabytes": {"size": [1_000_000, 1_000_000], "counts": [10**12]},
    "compressed lengths of terabytes": {"size": [80, 120], "counts": "oooooO1"},
    "lengths beyond the size": {"size": [80, 120], "counts": [0, 10**12]},
    "lengths short of the size": {"size": [80, 120], "counts": [5]},
    "a length below zero": {"size": [80, 120], "counts": [PIXELS + 5, -5]},
    "compressed lengths below zero": {"size": [80, 120], "counts": "N" * 50},
    "a length that does not end": {"size": [80, 120], "counts": "ooo"},
    "characters that are none": {"size": [80, 120], "counts": "\x00\xff é"},
    "a length of 100 digits": {"size": [80, 120], "counts": [10**99]},
    "lengths that are no numbers": {"size": [80, 120], "counts": [[1], None, "2"]},
    "true for a length": {"size": [80, 120], "counts": [True, PIXELS - 1]},
    "too many lengths": {"size": [80, 120], "counts": [0] * 4_000_001},
    "no lengths": {"size": [80, 120], "counts": []},
    "a size that is none": {"size": "ab", "counts": [PIXELS]},
    "a size of text": {"size": ["a", "b"], "counts": [PIXELS]},
    "no size": {"counts": [PIXELS]},
    "not a number in a polygon": [[float("nan"), 1, 2, 3, 4, 5]],
    "infinity in a polygon": [[float("inf"), 1, 2, 3, 4, 5]],
    "a corner far away": [[10**9, 1, 2, 3, 4, 5]],
    "a corner beyond all floats": [[10**400, 1, 2, 3, 4, 5]],
    "half a corner": [[1, 2, 3, 4, 5, 6, 7]],
    "a point": [[1, 2]],
    "an empty polygon": [[]],
    "text in a polygon": [["a", "b", "c", "d", "e", "f"]],
    "lists in a polygon": [[[1, 2], [3, 4], [5, 6]]],
    "lengths among polygons": [{"size": [80, 120], "counts": [PIXELS]}],
    "an endless outline": [[0, 0, 119, 79] * 10_000],
    "text": "segmentation",
}


@pytest.mark.parametrize("mask", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_mask_is_one_line(mask: Any) -> None:
    with pytest.raises(InputError) as error:
        decoded(mask, SIZE)
    assert "\n" not in str(error.value)


def test_a_polygon_may_leave_the_photo_a_little() -> None:
    assert decoded([[-3.0, -3.0, 130.5, -3.0, 130.5, 90.0, -3.0, 90.0]], SIZE).all()


def test_more_objects_of_one_category_than_can_be_measured_are_refused() -> None:
    objects = [ImageObject("dog", (1.0, 1.0, 2.0, 2.0))] * (MAX_OBJECTS + 1)
    with pytest.raises(InputError, match="1001 objects of one category, dog; annotate at most"):
        Place.of(objects, SIZE, (0.0, 0.0, 120.0, 80.0), (4, 4))


def test_as_many_objects_as_are_allowed_are_measured() -> None:
    generator = np.random.default_rng(0)
    objects = [
        ImageObject("dog", tuple(map(float, box)))
        for box in generator.random((MAX_OBJECTS, 4)) * 40
    ]
    place = Place.of(objects, SIZE, (0.0, 0.0, 120.0, 80.0), (4, 4))
    assert place is not None
    assert (place.in_box <= 1 + 1e-9).all()
