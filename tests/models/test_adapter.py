"""The adapter, part by part."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from captioning.configurable import build
from captioning.errors import InputError
from captioning.models import Adapter
from captioning.models.adapter import grid_of, grid_sinusoids, neighbourhood_means
from captioning.models.transformer_layers import sinusoids


def by_hand(annotations: Tensor, seen: Tensor, rows: int, columns: int) -> Tensor:
    """The mean of the neighbours that can be seen; nothing where there are none."""
    means = torch.zeros_like(annotations)
    for region in range(rows * columns):
        row, column = divmod(region, columns)
        around = [
            r * columns + c
            for r in range(max(row - 1, 0), min(row + 2, rows))
            for c in range(max(column - 1, 0), min(column + 2, columns))
            if seen[r * columns + c]
        ]
        if around:
            means[region] = annotations[around].mean(dim=0)
    return means


def test_a_mean_is_of_the_regions_around_that_can_be_seen() -> None:
    annotations = torch.randn(3, 12, 5, dtype=torch.double)
    mask = torch.rand(3, 12) < 0.6
    mask[2] = torch.arange(12) == 0  # most regions see nothing at all
    expected = torch.stack(
        [by_hand(its, seen, 3, 4) for its, seen in zip(annotations, mask, strict=True)]
    )
    torch.testing.assert_close(neighbourhood_means(annotations, mask, columns=4), expected)
    everything = torch.ones_like(mask)
    torch.testing.assert_close(
        neighbourhood_means(annotations, columns=4),
        neighbourhood_means(annotations, everything, columns=4),
    )


def test_a_grid_is_square_unless_its_columns_are_given() -> None:
    annotations = torch.randn(1, 9, 2, dtype=torch.double)
    square = neighbourhood_means(annotations)
    torch.testing.assert_close(square, neighbourhood_means(annotations, columns=3))
    torch.testing.assert_close(square[0, 4], annotations[0].mean(dim=0))
    with pytest.raises(InputError, match="give grid_columns"):
        neighbourhood_means(torch.randn(1, 6, 2))


def test_by_default_nothing_changes() -> None:
    annotations = torch.randn(2, 9, 5)
    assert Adapter(5).train()(annotations).equal(annotations)


def test_annotations_are_projected_with_a_relu_and_normalised() -> None:
    torch.manual_seed(0)
    annotations = torch.randn(2, 9, 5)
    plain, normal = Adapter(5, projection_dim=7), Adapter(5, projection_dim=7, normalise=True)
    normal.load_state_dict(plain.state_dict(), strict=False)
    projected = plain(annotations)
    assert projected.shape == (2, 9, 7)
    assert projected.min() == 0
    torch.testing.assert_close(normal(annotations), F.layer_norm(projected, [7]))


def test_dropout_acts_in_training_only() -> None:
    adapter, ones = Adapter(50, dropout=0.5), torch.ones(1, 4, 50)
    assert set(adapter.train()(ones).unique().tolist()) == {0.0, 2.0}
    assert adapter.eval()(ones).equal(ones)


def test_every_region_has_a_place_and_sees_all_others_but_masked_ones() -> None:
    torch.manual_seed(0)
    adapter = Adapter(6, region_layers=2, region_heads=2, grid_columns=3).double().eval()
    alone = adapter(torch.zeros(1, 6, 6, dtype=torch.double))
    assert torch.cdist(alone[0], alone[0]).fill_diagonal_(1.0).min() > 1e-3  # places differ
    vectors = torch.randn(2, 6, 6, dtype=torch.double)
    mask = torch.tensor([[True] * 6, [True] * 5 + [False]])
    for region in range(6):
        other = vectors.clone()
        other[:, region, 0] += 1.0
        changed = (adapter(vectors, mask) - adapter(other, mask)).abs().amax(dim=2) > 1e-9
        assert changed[0].all()
        assert changed[1, :5].all() == (region < 5)


def test_region_layers_and_smoothing_need_to_know_a_grid_that_is_not_square() -> None:
    for options in ({"smooth": True}, {"region_layers": 1, "region_heads": 1}):
        with pytest.raises(InputError, match="give grid_columns"):
            Adapter(5, **options)(torch.randn(1, 6, 5))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"projection_dim": 6, "dropout": 0.5, "normalise": True},
        {"region_layers": 1, "region_heads": 1, "smooth": True, "grid_columns": 3},
    ],
    ids=["nothing", "projected", "regions"],
)
def test_its_config_builds_the_same_adapter(options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    adapter = Adapter(5, **options).eval()
    again = build(adapter.config, Adapter).eval()
    again.load_state_dict(adapter.state_dict())
    annotations = torch.randn(2, 6, 5)
    assert again(annotations).equal(adapter(annotations))


def test_the_two_halves_tell_row_and_column_in_reading_order() -> None:
    found = grid_sinusoids((2, 3), torch.zeros(1, 6, 9, dtype=torch.double))
    places = torch.arange(3, dtype=torch.double)
    assert found.shape == (6, 9)
    for row in range(2):
        for column in range(3):
            expected = torch.cat([sinusoids(places, 4)[row], sinusoids(places, 5)[column]])
            torch.testing.assert_close(found[3 * row + column], expected)


def test_every_region_has_a_place_of_its_own() -> None:
    found = grid_sinusoids((14, 14), torch.zeros(1, 196, 32))
    assert torch.cdist(found, found).fill_diagonal_(1.0).min() > 0.1


def test_a_grid_is_square_or_has_the_columns_that_were_given() -> None:
    assert grid_of(49, None) == (7, 7)
    assert grid_of(12, 4) == (3, 4)
    assert grid_of(5, 5) == (1, 5)


@pytest.mark.parametrize(("regions", "columns"), [(12, None), (12, 5)])
def test_regions_that_are_no_grid_are_refused(regions: int, columns: int | None) -> None:
    with pytest.raises(InputError, match="grid_columns"):
        grid_of(regions, columns)
