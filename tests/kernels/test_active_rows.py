import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from captioning.data.vocabulary import PAD
from captioning.kernels.active_rows import ActiveRows, PackedWords, SharedPrefixes

IMAGES, CAPTIONS = 12, 5


@pytest.fixture
def tokens() -> Tensor:
    """Captions of no to eleven words, each word a number of its own."""
    lengths = torch.randint(0, 12, (IMAGES * CAPTIONS,), generator=torch.Generator().manual_seed(0))
    lengths[7] = 11
    numbers = (torch.arange(int(lengths.sum())) + PAD + 1).split(lengths.tolist())
    return pad_sequence(list(numbers), True, PAD).view(IMAGES, CAPTIONS, -1)


def test_every_word_is_read_once_at_its_time(tokens: Tensor) -> None:
    packed = PackedWords(tokens)
    assert packed.tokens[packed.real].sort().values.equal(tokens[tokens != PAD].sort().values)
    for place, word in enumerate(packed.words):
        wanted = tokens[:, :, place]
        here = packed.tokens[word.here]
        assert here[here != PAD].sort().values.equal(wanted[wanted != PAD].sort().values)


def test_a_caption_keeps_its_row_from_word_to_word(tokens: Tensor) -> None:
    packed = PackedWords(tokens)
    by_caption = tokens.flatten(0, 1)[packed.order]
    for place, word in enumerate(packed.words):
        assert packed.tokens[word.here].equal(by_caption[: len(word.slots), place])


def test_grouping_rows_by_image_is_invertible(tokens: Tensor) -> None:
    packed = PackedWords(tokens)
    for word in packed.words:
        here = packed.tokens[word.here, None].double()
        by_image = word.by_image(here)
        assert by_image.shape == (IMAGES, word.captions, 1)
        assert word.in_rows(by_image).equal(here)
    for image, numbers in enumerate(packed.by_image(packed.tokens[:, None].double())[:, :, 0]):
        wanted = tokens[image][tokens[image] != PAD].double()
        assert numbers[numbers != PAD].sort().values.equal(wanted.sort().values)


def test_values_of_rows_are_spread_to_the_places_of_their_words(tokens: Tensor) -> None:
    packed = PackedWords(tokens)
    found = packed.spread(packed.without_padding(packed.tokens[:, None].double()))
    assert found[..., 0].equal(torch.where(tokens == PAD, 0, tokens).double())


@pytest.mark.parametrize("place", [0, 5, 10])
def test_a_search_reads_the_captions_that_have_not_ended(tokens: Tensor, place: int) -> None:
    last = tokens[:, :, place]
    real = int((last != PAD).sum())
    word = ActiveRows.of(last)
    assert real <= word.size <= last.numel()
    read = word.in_rows(last)
    assert len(read) == word.size
    assert read[read != PAD].sort().values.equal(last[last != PAD].sort().values)
    assert word.by_image(read[:, None].double())[..., 0].equal(last.double())


def test_a_search_whose_captions_are_all_active_reads_them_in_order() -> None:
    last = torch.arange(1, 31).view(6, 5)
    word = ActiveRows.of(last)
    assert word.in_rows(last).equal(last.flatten())
    assert word.by_image(last.view(30, 1).double())[..., 0].equal(last.double())


@pytest.mark.parametrize("seed", range(3))
def test_every_prefix_occurs_once_and_its_captions_refer_to_it(seed: int) -> None:
    images, captions = 20, 5
    tokens = torch.arange(1, images * captions + 1)
    tokens[::3] = PAD  # the first caption among them
    tokens = tokens.view(images, captions)
    origins = torch.randint(0, captions, tokens.shape, generator=torch.manual_seed(seed))
    names = torch.arange(images)[:, None] * captions + origins
    active = ActiveRows.of(tokens)
    is_active = active.in_rows(tokens) != PAD
    shared = SharedPrefixes.among(active, tokens, origins)
    found = shared.compact(active.in_rows(names)[:, None].double())
    assert sorted(found[:, 0].tolist()) == names[tokens != PAD].unique().tolist()
    assert shared.expand(found)[is_active, 0].equal(active.in_rows(names)[is_active].double())
    by_image = shared.rows.by_image(found + 1)
    for image, row in enumerate(by_image[..., 0].long()):
        assert set(((row[row > 0] - 1) // captions).tolist()) == {image}
    assert shared.rows.in_rows(by_image).equal(found + 1)
