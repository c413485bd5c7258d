"""Means over neighbouring regions, and keys made of them."""

import pytest
import torch
from torch import Tensor

from captioning.errors import InputError
from captioning.models import LSTMDecoder, MultiHeadAttention
from captioning.models.neighbourhood import neighbourhood_means


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


def test_smooth_keys_find_what_fills_a_neighbourhood_and_show_it_as_it_is() -> None:
    """A single region whose key fits best loses against nine that fit well."""
    decoder = LSTMDecoder(1, 8, 6, 7, 1, smooth_keys=True).double().eval()
    plain = LSTMDecoder(1, 8, 6, 7, 1).double().eval()
    plain.load_state_dict(decoder.state_dict())
    for lstm in (decoder, plain):
        torch.nn.init.ones_(lstm.attention.key.weight)
        torch.nn.init.zeros_(lstm.attention.key.bias)
        torch.nn.init.ones_(lstm.attention.get_submodule("energy").weight)
        torch.nn.init.zeros_(lstm.attention.query.weight)
    cells = torch.zeros(7, 7, dtype=torch.double)
    cells[1:4, 1:4] = 0.6
    cells[5, 5] = 1.0
    annotations = cells.flatten()[None, :, None]
    looked = {}
    for name, lstm in (("smooth", decoder), ("plain", plain)):
        memory = lstm.remember(annotations)
        assert memory.annotations.equal(annotations)
        step = lstm.step(torch.full((1, 1), 4), lstm.start(memory, 1), memory)
        looked[name] = divmod(int(step.weights.argmax()), 7)
    assert looked == {"smooth": (2, 2), "plain": (5, 5)}


def test_keys_of_several_heads_are_not_smooth() -> None:
    with pytest.raises(InputError, match="smooth_keys: multi-head attention has values"):
        LSTMDecoder(4, 8, attention=MultiHeadAttention, smooth_keys=True)
