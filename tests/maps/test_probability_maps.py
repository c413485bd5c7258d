import pytest
import torch

from captioning.data.vocabulary import BOS, EOS
from captioning.maps import word_maps
from captioning.maps.captioned import shares
from captioning.maps.probability_maps import windows, word_log_probs
from tests.maps.conftest import TOKENS as CAPTIONS
from tests.maps.conftest import captioned_batch

TOKENS = torch.tensor([[[BOS, 4, 6, 5, EOS]]])
STEP = 1e-6


@torch.no_grad()
def slopes(kind: str, directions: torch.Tensor) -> torch.Tensor:
    """Slope of each word's log probability along changes of annotation vectors: (changes, T)."""
    batch = captioned_batch(kind, TOKENS)
    above, below = (
        torch.stack(
            [
                word_log_probs(batch.model, batch.annotations + sign * STEP * change, TOKENS)[0, 0]
                for change in directions
            ]
        )
        for sign in (1, -1)
    )
    return (above - below) / (2 * STEP)


@pytest.mark.parametrize("kind", ["lstm", "transformer"])
def test_gradients_are_slopes_of_the_word_s_log_probability(kind: str) -> None:
    batch = captioned_batch(kind, TOKENS)
    longer = torch.diag_embed(batch.annotations[0].T).permute(1, 2, 0)  # one region's vector each
    every_region = torch.eye(5).double()[:, None].expand(-1, 16, -1)  # one channel each
    expected = {
        "gradient": slopes(kind, longer).T,
        "grad-cam": slopes(kind, every_region).T @ batch.annotations[0].T,
    }
    for name, relevance in expected.items():
        maps, expected_maps = word_maps(name, batch)[0, 0], shares(relevance, (4, 4))
        torch.testing.assert_close(maps, expected_maps, atol=1e-7, rtol=1e-5)


def test_many_captions_are_computed_a_few_at_a_time() -> None:
    captions = torch.tensor([[BOS, word, EOS] for word in (4, 5, 6, 7)] * 5)
    maps = word_maps("gradient", captioned_batch(tokens=captions[None]))
    assert maps.shape == (1, 20, 2, 4, 4)
    torch.testing.assert_close(maps[0, 16:], maps[0, :4])


def test_a_map_without_a_positive_part_is_uniform() -> None:
    relevance = torch.tensor([[[[1.0, -2.0, 3.0, 0.0], [-1.0, 0.0, -3.0, 0.0]]]])
    expected = torch.tensor([[[[[0.25, 0.0], [0.75, 0.0]], [[0.25, 0.25], [0.25, 0.25]]]]])
    torch.testing.assert_close(shares(relevance, (2, 2)), expected)


def test_occlusion_is_the_drop_without_a_neighbourhood(kind: str) -> None:
    batch = captioned_batch(kind)
    log_probs = word_log_probs(batch.model, batch.annotations, CAPTIONS)
    drops = torch.zeros(2, 2, 4, 16).double()
    for row in range(4):
        for column in range(4):
            mask = torch.ones(2, 4, 4, dtype=torch.bool)
            mask[:, max(row - 1, 0) : row + 2, max(column - 1, 0) : column + 2] = False
            occluded = word_log_probs(
                batch.model, batch.annotations, CAPTIONS, mask=mask.flatten(1)
            )
            drops[..., 4 * row + column] = (log_probs - occluded).detach()
    torch.testing.assert_close(word_maps("occlusion", batch), shares(drops, (4, 4)))


def test_windows_are_cut_at_the_edge_and_never_hide_all_regions() -> None:
    assert windows((7, 10)).sum(dim=1).tolist().count(9) == 5 * 8
    assert windows((7, 10))[0].sum() == 4
    for grid in ((1, 1), (1, 5), (2, 2), (3, 3), (4, 4)):
        assert not windows(grid).all(dim=1).any()
    torch.testing.assert_close(windows((2, 2)), torch.eye(4, dtype=torch.bool))
