import pytest
import torch
from torch import Tensor

from captioning.data.vocabulary import PAD
from captioning.kernels.active_rows import ActiveRows
from captioning.kernels.shared_prefixes import WORTHWHILE, SharedPrefixes

IMAGES, CAPTIONS = 20, 5


@pytest.fixture
def tokens() -> Tensor:
    """The last tokens of captions of which every third has ended, the first among them."""
    tokens = torch.arange(1, IMAGES * CAPTIONS + 1)
    tokens[::3] = PAD
    return tokens.view(IMAGES, CAPTIONS)


def origins(seed: int) -> Tensor:
    return torch.randint(0, CAPTIONS, (IMAGES, CAPTIONS), generator=torch.manual_seed(seed))


@pytest.mark.parametrize("seed", range(5))
def test_every_prefix_occurs_once_and_its_captions_refer_to_it(seed: int, tokens: Tensor) -> None:
    active = ActiveRows.of(tokens)
    assert active.size > (tokens != PAD).sum(), "some rows are padding"
    shared = SharedPrefixes.among(active, tokens, origins(seed))
    names = torch.arange(IMAGES)[:, None] * CAPTIONS + origins(seed)
    is_active = active.in_rows(tokens) != PAD
    found = shared.compact(active.in_rows(names)[:, None].double())
    assert sorted(found[:, 0].tolist()) == names[tokens != PAD].unique().tolist()
    assert is_active[shared.first].all()
    assert shared.expand(found)[is_active, 0].equal(active.in_rows(names)[is_active].double())


def test_grouping_prefixes_by_image_is_invertible(tokens: Tensor) -> None:
    active = ActiveRows.of(tokens)
    shared = SharedPrefixes.among(active, tokens, origins(1))
    images = torch.arange(1.0, IMAGES + 1)[:, None].expand(-1, CAPTIONS)
    found = shared.compact(active.in_rows(images)[:, None])
    by_image = shared.rows.by_image(found)
    assert by_image.shape[1] < CAPTIONS
    for number, image in enumerate(by_image[..., 0], start=1):
        assert set(image.tolist()) <= {0.0, float(number)}
    assert shared.rows.in_rows(by_image).equal(found)


def test_rows_keep_their_own_prefixes_where_little_is_shared(tokens: Tensor) -> None:
    alone = ActiveRows.of(tokens[:, :1])
    assert SharedPrefixes.among(alone, tokens[:, :1], origins(1)[:, :1]) == (alone, None, None)
    active, apart = ActiveRows.all_of(tokens + 1), torch.arange(CAPTIONS).repeat(IMAGES, 1)
    pairs = apart.clone()
    pairs[: WORTHWHILE - 1, 1] = 0
    for few in apart, pairs:
        assert SharedPrefixes.among(active, tokens + 1, few) == (active, None, None)
    pairs[WORTHWHILE - 1, 1] = 0
    assert len(SharedPrefixes.among(active, tokens + 1, pairs).first) == active.size - WORTHWHILE


def test_few_prefixes_are_padded_to_few_places() -> None:
    tokens = torch.full((IMAGES, CAPTIONS), PAD)
    tokens[:, 2] = 4  # as at the first word, when the beams of an image are one
    slots = (tokens.flatten() != PAD).nonzero()[:, 0]
    active = ActiveRows(slice(0, IMAGES), CAPTIONS, slots, IMAGES)
    shared = SharedPrefixes.among(active, tokens, origins(1))
    rows = torch.arange(1.0, IMAGES + 1)[:, None]
    assert shared.rows.by_image(shared.compact(rows)).equal(rows[:, None])
    assert shared.expand(rows).equal(rows)
