"""The adapter, part by part."""

import torch
from torch.nn import functional as F

from captioning.configurable import build
from captioning.models import Adapter
from captioning.models.adapter import grid_sinusoids
from captioning.models.transformer import sinusoids


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


def test_every_region_has_a_place_and_sees_all_but_masked_ones() -> None:
    torch.manual_seed(0)
    adapter = Adapter(6, region_layers=2, region_heads=2).double().eval()
    alone = adapter(torch.zeros(1, 9, 6, dtype=torch.double))
    assert torch.cdist(alone[0], alone[0]).fill_diagonal_(1.0).min() > 1e-3  # places differ
    vectors = torch.randn(2, 9, 6, dtype=torch.double)
    mask = torch.tensor([[True] * 9, [True] * 8 + [False]])
    for region in range(9):
        other = vectors.clone()
        other[:, region, 0] += 1.0
        changed = (adapter(vectors, mask) - adapter(other, mask)).abs().amax(dim=2) > 1e-9
        assert changed[0].all()
        assert changed[1, :8].all() == (region < 8)


def test_its_config_builds_the_same_adapter() -> None:
    adapter = Adapter(5, 6, 0.5, normalise=True, region_layers=1, region_heads=2).eval()
    earlier = {"smooth": False, "grid_columns": None}  # arguments of earlier versions
    again = build(adapter.config | earlier, Adapter).eval()
    again.load_state_dict(adapter.state_dict())
    annotations = torch.randn(2, 4, 5)
    assert again(annotations).equal(adapter(annotations))


def test_the_halves_of_a_place_are_its_row_and_its_column() -> None:
    found = grid_sinusoids(torch.zeros(1, 9, 7, dtype=torch.double))
    places = torch.arange(3, dtype=torch.double)
    assert found.shape == (9, 7)
    for row in range(3):
        for column in range(3):
            expected = torch.cat([sinusoids(places, 3)[row], sinusoids(places, 4)[column]])
            torch.testing.assert_close(found[3 * row + column], expected)
