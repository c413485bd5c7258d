import torch
from jaxtyping import Int
from torch import Tensor

from captioning.captioner import Captioner
from captioning.data.vocabulary import BOS, EOS
from captioning.maps import Reading, word_maps
from captioning.maps.windows import windows
from captioning.models import Decoder
from captioning.models.decoder import Memory, State, Step
from tests.maps.test_maps import read


class Seeing(Decoder):
    """Writes word 4 with odds by the sum of what it sees."""

    def start(self, memory: Memory, n: int) -> State:
        return {}

    def step(self, tokens: Int[Tensor, "B N"], state: State, memory: Memory) -> Step:
        assert memory.mask is not None or memory.annotations.ndim == 3
        seen = memory.annotations[..., 0]
        seen = seen if memory.mask is None else seen * memory.mask
        logits = torch.zeros(*tokens.shape, self.vocab_size, dtype=seen.dtype)
        logits[..., 4] = seen.sum(dim=1)[:, None]
        even = torch.full((*tokens.shape, seen.shape[1]), 1 / seen.shape[1], dtype=seen.dtype)
        return Step(logits, even, state)


def seen(captioner: Captioner) -> Reading:
    """A caption of word 4, whose odds come from the region in row 1, column 2, of 5 x 5."""
    annotations = torch.zeros(1, 25, 3, dtype=torch.double)
    annotations[0, 7, 0] = 2.0
    images = torch.zeros(1, 3, 40, 40, dtype=torch.uint8)
    tokens = torch.tensor([[[BOS, 4, EOS]]])
    return Reading(captioner.encoder, Seeing(3, 8), images, annotations, tokens)


def test_a_word_loses_where_the_window_covers_what_it_needs(captioner: Captioner) -> None:
    assert captioner.encoder.grid(40, 40) == (5, 5)
    found = word_maps("occlusion", seen(captioner))[0, 0, 0]
    expected = torch.zeros(5, 5, dtype=torch.double)
    expected[0:3, 1:4] = 1 / 9
    torch.testing.assert_close(found, expected)


def test_occlusion_times_attention_times_norm_names_the_one_region(captioner: Captioner) -> None:
    found = word_maps("occlusion-norm", seen(captioner))[0, 0, 0]
    expected = torch.zeros(5, 5, dtype=torch.double)
    expected[1, 2] = 1.0  # all other annotation vectors are zero
    torch.testing.assert_close(found, expected)


def test_hiding_equals_reading_without_the_regions(captioner: Captioner) -> None:
    reading = read(captioner)
    found = word_maps("occlusion", reading)
    whole = reading.word_log_probs(reading.annotations)
    mask = torch.ones(2, 4, 4, dtype=torch.bool)
    mask[:, :2, :2] = False  # around the corner
    fall = (whole - reading.word_log_probs(reading.annotations, mask.flatten(1))).clamp(min=0)
    mask[:, :2, 2] = False  # around the cell to its right
    next_fall = (whole - reading.word_log_probs(reading.annotations, mask.flatten(1))).clamp(min=0)
    torch.testing.assert_close(
        found[..., 0, 0] * next_fall, found[..., 0, 1] * fall, atol=1e-5, rtol=1e-3
    )


def test_both_maps_by_occlusion_hide_each_region_once(captioner: Captioner) -> None:
    names = ("occlusion", "occlusion-norm")
    alone = [word_maps(name, read(captioner)) for name in names]
    passes: list[int] = []
    reading = read(captioner)
    reading.decoder.register_forward_hook(lambda *_: passes.append(1))
    found = [word_maps(name, reading) for name in names]
    assert len(passes) == 16 + 1  # each of 16 regions hidden, and none
    for shared, own in zip(found, alone, strict=True):
        torch.testing.assert_close(shared, own)


def test_windows_are_cut_at_the_edge_and_never_cover_all_regions() -> None:
    assert windows((7, 10)).sum(dim=1).tolist().count(9) == 5 * 8
    assert windows((7, 10))[0].sum() == 4
    for grid in ((1, 1), (1, 5), (2, 2), (3, 3), (4, 4)):
        found = windows(grid)
        assert found.shape == (grid[0] * grid[1],) * 2
        assert not found.all(dim=1).any()
    torch.testing.assert_close(windows((2, 2)), torch.eye(4, dtype=torch.bool))
