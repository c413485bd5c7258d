import math

import pytest
import torch
from torch import Tensor

from captioning.errors import InputError
from captioning.models.positions import grid_of, grid_sinusoids, sinusoids


def places(count: int) -> Tensor:
    return torch.arange(count, dtype=torch.double)


@pytest.mark.parametrize("width", [1, 6, 7])
def test_positions_are_the_papers_formula(width: int) -> None:
    found = sinusoids(places(5), width)
    assert found.shape == (5, width)
    for position in range(5):
        for channel in range(width):
            wave = math.cos if channel % 2 else math.sin
            angle = position / 10000 ** (2 * (channel // 2) / width)
            assert found[position, channel].item() == pytest.approx(wave(angle), abs=1e-12)


def test_a_distance_is_the_same_product_everywhere() -> None:
    found = sinusoids(places(30), 16)
    products = found @ found.T
    for distance in range(5):
        torch.testing.assert_close(
            products.diagonal(distance), products[0, distance].expand(30 - distance)
        )


def test_the_two_halves_tell_row_and_column_in_reading_order() -> None:
    found = grid_sinusoids(places(2), places(3), 9)
    assert found.shape == (6, 9)
    for row in range(2):
        for column in range(3):
            expected = torch.cat([sinusoids(places(2), 4)[row], sinusoids(places(3), 5)[column]])
            torch.testing.assert_close(found[3 * row + column], expected)


def test_every_region_has_a_place_of_its_own() -> None:
    found = grid_sinusoids(places(14), places(14), 32)
    assert torch.cdist(found, found).fill_diagonal_(1.0).min() > 0.1


def test_a_grid_is_square_or_has_the_columns_that_were_given() -> None:
    assert grid_of(49, None) == (7, 7)
    assert grid_of(12, 4) == (3, 4)
    assert grid_of(5, 5) == (1, 5)


@pytest.mark.parametrize(("regions", "columns"), [(12, None), (12, 5)])
def test_regions_that_are_no_grid_are_refused(regions: int, columns: int | None) -> None:
    with pytest.raises(InputError, match="grid_columns"):
        grid_of(regions, columns)
