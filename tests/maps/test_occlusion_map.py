import torch

from captioning.maps import word_maps
from captioning.maps.captioned import shares, word_log_probs
from captioning.maps.occlusion_map import windows
from tests.maps.conftest import TOKENS, captioned


def test_occlusion_is_the_drop_without_a_neighbourhood(kind: str) -> None:
    given = captioned(kind)
    whole = word_log_probs(given.model, given.annotations, TOKENS)
    drops = torch.zeros(2, 2, 4, 16).double()
    for row in range(4):
        for column in range(4):
            mask = torch.ones(2, 4, 4, dtype=torch.bool)
            mask[:, max(row - 1, 0) : row + 2, max(column - 1, 0) : column + 2] = False
            without = word_log_probs(given.model, given.annotations, TOKENS, mask.flatten(1))
            drops[..., 4 * row + column] = (whole - without).detach()
    torch.testing.assert_close(word_maps("occlusion", given), shares(drops, (4, 4)))


def test_windows_are_cut_at_the_edge_and_never_hide_all_regions() -> None:
    assert windows((7, 10)).sum(dim=1).tolist().count(9) == 5 * 8
    assert windows((7, 10))[0].sum() == 4
    for grid in ((1, 1), (1, 5), (2, 2), (3, 3), (4, 4)):
        assert not windows(grid).all(dim=1).any()
    torch.testing.assert_close(windows((2, 2)), torch.eye(4, dtype=torch.bool))
