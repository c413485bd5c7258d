import pytest
import torch
from torch import Tensor

from captioning.captioner import Captioner
from captioning.data.vocabulary import BOS, EOS, PAD
from captioning.maps import Reading
from captioning.maps.evidence_map import around_each
from captioning.maps.sampled_effects import PAIRS, POWER, random_halves, sampled_effects
from tests.maps.test_maps import TOKENS, read
from tests.maps.test_occlusion_maps import seen

GRIDS = {(1, 2): 1, (3, 3): 8, (5, 5): 15, (7, 10): PAIRS, (14, 14): PAIRS}
"""The pairs of halves by the grid: as many as smooth noises can be orthogonal."""


def test_a_region_has_the_effect_that_seeing_it_has(captioner: Captioner) -> None:
    reading = seen(captioner)  # word 4 has a logit of 2 where region 7 is seen, else 0, as all have
    found = sampled_effects(reading)[0, 0, 0]
    others = 8 - 3 - 1  # of eight words three are never generated
    likely = torch.tensor(2.0, dtype=torch.double).exp()
    of_seeing = 1 - (1 / (1 + others) / (likely / (likely + others))) ** POWER
    signs = random_halves((5, 5)) * 2.0 - 1
    agreement = (signs[:, 7:8] * signs).double().mean(dim=0)
    torch.testing.assert_close(found, of_seeing * agreement)
    assert found.argmax() == 7


def test_a_word_of_next_to_no_probability_has_effects_too(captioner: Captioner) -> None:
    reading = read(captioner, torch.tensor([[[BOS, 4, EOS]]]))
    before = sampled_effects(reading)
    reading.decoder.get_submodule("output").bias.data[4] -= 200  # nats: zero in single precision
    after = sampled_effects(reading)
    assert after[0, 0, 0].abs().max() > 0.01
    torch.testing.assert_close(after[0, 0, 1], before[0, 0, 1])


def test_what_is_no_word_has_no_effect(captioner: Captioner) -> None:
    found = sampled_effects(read(captioner, torch.tensor([[[BOS, 4, EOS, PAD]]])))
    assert found[:, :, :2].abs().amax(dim=3).gt(0).all()
    assert not found[:, :, 2].any()


def test_effects_are_those_of_each_caption_alone_however_many_are_read(
    captioner: Captioner, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = sampled_effects(read(captioner))
    monkeypatch.setattr("captioning.maps.sampled_effects.ROWS", 6)
    torch.testing.assert_close(sampled_effects(read(captioner)), together)
    reading = read(captioner)
    for n in range(TOKENS.shape[1]):
        alone = Reading(
            reading.encoder,
            reading.decoder,
            reading.images,
            reading.annotations,
            reading.tokens[:, n : n + 1],
        )
        torch.testing.assert_close(sampled_effects(alone), together[:, n : n + 1])


@pytest.mark.parametrize(("grid", "pairs"), GRIDS.items())
def test_each_region_is_hidden_in_half_of_all_and_half_of_them_at_a_time(
    grid: tuple[int, int], pairs: int
) -> None:
    regions = grid[0] * grid[1]
    halves = random_halves(grid)
    assert halves.shape == (2 * pairs, regions)
    assert torch.equal(halves[::2], ~halves[1::2])
    assert (halves[::2].sum(dim=1) == regions // 2).all()
    assert torch.equal(halves, random_halves(grid))  # for every photo the same


def test_halves_are_of_few_large_pieces_and_later_ones_of_smaller_ones() -> None:
    halves = random_halves((14, 14)).unflatten(1, (14, 14))
    beside = (halves[..., 1:] == halves[..., :-1]).double().mean(dim=(1, 2))
    below = (halves[:, 1:] == halves[:, :-1]).double().mean(dim=(1, 2))
    assert min(beside[:16].mean(), below[:16].mean()) > 0.8
    assert 0.6 < min(beside.min(), below.min()) < 0.75  # 0.5 were pieces of a single region


@pytest.mark.parametrize("grid", GRIDS)
def test_halves_do_not_depend_on_how_a_processor_rounds(
    grid: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = random_halves(grid)
    rounding = torch.Generator().manual_seed(0)

    def rounded_otherwise(noise: Tensor, grid: tuple[int, int]) -> Tensor:
        smooth = around_each(noise, grid)
        return smooth * (1 + 1e-15 * torch.randn(smooth.shape, generator=rounding).double())

    monkeypatch.setattr("captioning.maps.sampled_effects.around_each", rounded_otherwise)
    assert torch.equal(random_halves(grid), exact)


@pytest.mark.parametrize("grid", [(5, 5), (7, 10), (14, 14)])
def test_no_half_repeats_what_another_tells(grid: tuple[int, int]) -> None:
    signs = random_halves(grid)[::2] * 2.0 - 1
    alike = (signs @ signs.T / signs.shape[1]).abs().fill_diagonal_(0)
    assert alike.sum() / (alike.numel() - len(alike)) < 0.15  # above that if not made orthogonal
    assert alike.max() < 0.6


def test_a_single_region_has_no_half_and_so_no_effect(captioner: Captioner) -> None:
    assert random_halves((1, 1)).shape == (0, 1)
    images = torch.zeros(1, 3, 8, 8, dtype=torch.uint8)
    annotations = captioner.encode(images).detach()
    assert annotations.shape[1] == 1
    tokens = torch.tensor([[[BOS, 4, EOS]]])
    reading = Reading(captioner.encoder, captioner.decoder, images, annotations, tokens)
    assert not sampled_effects(reading).any()
