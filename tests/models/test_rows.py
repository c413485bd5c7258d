import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from captioning.data.vocabulary import PAD
from captioning.models.rows import FILLED, Rows, Word

IMAGES, CAPTIONS = 12, 5


@pytest.fixture
def tokens() -> Tensor:
    """Captions of no to eleven words, each word a number of its own."""
    lengths = torch.randint(0, 12, (IMAGES * CAPTIONS,), generator=torch.Generator().manual_seed(0))
    lengths[7] = 11
    numbers = (torch.arange(int(lengths.sum())) + PAD + 1).split(lengths.tolist())
    return pad_sequence(list(numbers), True, PAD).view(IMAGES, CAPTIONS, -1)


def test_every_word_is_read_once_at_its_time(tokens: Tensor) -> None:
    rows = Rows(tokens)
    assert rows.tokens[rows.real].sort().values.equal(tokens[tokens != PAD].sort().values)
    for place, word in enumerate(rows.words):
        wanted = tokens[:, :, place]
        here = rows.tokens[word.here]
        assert here[here != PAD].sort().values.equal(wanted[wanted != PAD].sort().values)


def test_little_padding_is_read(tokens: Tensor) -> None:
    rows = Rows(tokens)
    for place, word in enumerate(rows.words):
        real = int((tokens[:, :, place] != PAD).sum())
        assert real <= len(word.slots) < real + FILLED
        assert len(word.slots) % FILLED == 0 or len(word.slots) == IMAGES * CAPTIONS
    assert len(rows.words) == 11


def test_a_caption_keeps_its_row_from_word_to_word(tokens: Tensor) -> None:
    rows = Rows(tokens)
    by_caption = tokens.flatten(0, 1)[rows.order]
    for place, word in enumerate(rows.words):
        assert rows.tokens[word.here].equal(by_caption[: len(word.slots), place])


def test_rows_are_put_at_their_images_and_taken_back(tokens: Tensor) -> None:
    rows = Rows(tokens)
    for word in rows.words:
        here = rows.tokens[word.here, None].double()
        by_image = word.by_image(here)
        assert by_image.shape == (IMAGES, word.captions, 1)
        assert word.in_rows(by_image).equal(here)
    for image, numbers in enumerate(rows.by_image(rows.tokens[:, None].double())[:, :, 0]):
        wanted = tokens[image][tokens[image] != PAD].double()
        assert numbers[numbers != PAD].sort().values.equal(wanted.sort().values)


def test_what_belongs_to_rows_is_spread_to_the_places_of_their_words(tokens: Tensor) -> None:
    rows = Rows(tokens)
    found = rows.spread(rows.without_padding(rows.tokens[:, None].double()))
    assert found[..., 0].equal(torch.where(tokens == PAD, 0, tokens).double())


@pytest.mark.parametrize("place", [0, 5, 10])
def test_of_a_search_the_captions_are_read_that_go_on(tokens: Tensor, place: int) -> None:
    last = tokens[:, :, place]
    real = int((last != PAD).sum())
    word = Word.going_on(last)
    assert real <= word.size < real + FILLED
    read = word.in_rows(last)
    assert len(read) == word.size
    assert read[read != PAD].sort().values.equal(last[last != PAD].sort().values)
    assert word.by_image(read[:, None].double())[..., 0].equal(last.double())


def test_a_search_whose_captions_all_go_on_reads_them_in_order() -> None:
    last = torch.arange(1, 31).view(6, 5)
    word = Word.going_on(last)
    assert word.in_rows(last).equal(last.flatten())
    assert word.by_image(last.view(30, 1).double())[..., 0].equal(last.double())
