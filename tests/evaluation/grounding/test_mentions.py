from pathlib import Path
from typing import Any

import numpy as np
import pytest

from captioning.data.records import ImageObject
from captioning.evaluation.grounding import GroundedMention, Mention
from captioning.evaluation.grounding.targets import (
    MEASURES,
    OBJECT_GROUPS,
    SOURCES,
    Target,
    gaussian,
    map_values,
    score_name,
)

SIZE = (100, 80)
CROP = (10.0, 0.0, 80.0, 80.0)
Box = tuple[float, float, float, float]


def target(grid: tuple[int, ...], *boxes: tuple[float, ...]) -> Target:
    """Of dogs, all of which have masks that fill half of their boxes."""
    dogs = [
        ImageObject("dog", (x, y, w, h), [[x, y, x + w / 2, y, x + w / 2, y + h, x, y + h]])
        for x, y, w, h in (map(float, box) for box in boxes)
    ]
    rows, columns = grid
    found = Target.of(dogs, size=SIZE, crop=CROP, grid=(rows, columns))
    assert found is not None
    return found


def values(weights: np.ndarray, *boxes: tuple[float, ...]) -> dict[str, float]:
    return map_values(weights, target(weights.shape, *boxes))


def grounded(*boxes: tuple[float, ...]) -> GroundedMention:
    where = target((4, 4), *boxes)
    return GroundedMention(
        1, Path("1.jpg"), 0, Mention("dog", "dog", 1, 2), where, some_weights(), {}
    )


def some_weights(seed: int = 0, grid: tuple[int, int] = (4, 4)) -> np.ndarray:
    weights = np.random.default_rng(seed).random(grid)
    return weights / weights.sum()


def mirrored(box: Box) -> Box:
    return SIZE[0] - box[0] - box[2], box[1], box[2], box[3]


@pytest.mark.parametrize(
    ("weights", "boxes", "scores"),
    [
        (np.pad(np.full((2, 2), 0.25), ((1, 1), (2, 0))), [(50, 20, 40, 40)], (1, 1, 0.5)),
        ([[0.7, 0.0], [0.1, 0.2]], [(10, 0, 40, 40), (50, 40, 40, 40)], (1, 0.9, 0.45)),
        ([[0.4, 0.1], [0.1, 0.4]], [(10, 0, 80, 40)], (0.5, 0.5, 0.4)),
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
    found = values(np.array(weights), *boxes)
    assert [found[name] for name in MEASURES] == pytest.approx(scores)


@pytest.mark.parametrize("grid", [(4, 4), (7, 7), (3, 5)])
def test_a_uniform_maps_mass_is_the_boxs_share_of_the_crop(grid: tuple[int, int]) -> None:
    found = values(np.full(grid, 1 / np.prod(grid)), (33, 7, 31, 43), (60, 40, 90, 11))
    area = (31 * 43 + (90 - 60) * 11 - (64 - 60) * (50 - 40)) / 80**2
    assert found["mass in box"] == pytest.approx(area)
    for measure in MEASURES:
        assert found[measure] == found[score_name(measure, "uniform")]


def test_the_gaussian_is_centred_and_falls_by_its_sigma() -> None:
    weights = gaussian((5, 5))
    assert weights.sum() == pytest.approx(1)
    np.testing.assert_array_equal(weights, weights[::-1, ::-1].T)
    # From the middle cell to the next one is a fifth of the side, and sigma a quarter.
    assert weights[2, 3] / weights[2, 2] == pytest.approx(np.exp(-0.5 * (0.2 / 0.25) ** 2))


@pytest.mark.parametrize("seed", range(2))
def test_a_mirrored_photo_with_a_mirrored_map_scores_the_same(seed: int) -> None:
    boxes = [(22.0, 5.0, 31.0, 44.0), (41.0, 31.0, 45.0, 21.0)]
    weights = some_weights(seed)
    found = values(weights, *boxes)
    # The masks of `target` lie in the left halves of boxes, so they are left aside here.
    other = values(weights[:, ::-1].copy(), *map(mirrored, boxes))
    for source in SOURCES:
        for measure in ("pointing", "mass in box"):
            name = score_name(measure, source)
            assert found[name] == pytest.approx(other[name])


def test_kinds_are_by_the_middle_and_the_size_of_the_boxes() -> None:
    # By hand: the crop's middle is at (50, 40), its side 80.
    corner = grounded((10, 0, 20, 20))
    assert corner.size_share == pytest.approx(1 / 16)
    pair = grounded((10, 0, 20, 20), (70, 60, 20, 20))
    assert not pair.target.covers_middle
    whole = grounded((0, 0, 100, 80))
    assert whole.size_share == 1
    kinds = {"not in the middle", "medium"}
    assert {name for name, kind in OBJECT_GROUPS.items() if kind(corner)} == kinds
    assert {name for name, kind in OBJECT_GROUPS.items() if kind(whole)} == {"large, from 1/4"}
