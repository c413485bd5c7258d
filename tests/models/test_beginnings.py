import pytest
import torch
from torch import Tensor

from captioning.data.vocabulary import PAD
from captioning.models import LSTMDecoder, beginnings, rows
from captioning.models.beginnings import WORTHWHILE, Beginnings
from captioning.models.rows import Word
from captioning.search import BeamSearch, Sampling, Search

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
def test_every_beginning_is_there_once_and_its_captions_find_it(seed: int, tokens: Tensor) -> None:
    word = Word.going_on(tokens)
    assert word.size > (tokens != PAD).sum(), "some rows only fill up"
    shared = Beginnings.shared_by(word, tokens, origins(seed))
    names = torch.arange(IMAGES)[:, None] * CAPTIONS + origins(seed)
    goes_on = word.in_rows(tokens) != PAD
    found = shared.once(word.in_rows(names)[:, None].double())
    assert sorted(found[:, 0].tolist()) == names[tokens != PAD].unique().tolist()
    assert goes_on[shared.first].all()
    assert shared.again(found)[goes_on, 0].equal(word.in_rows(names)[goes_on].double())


def test_beginnings_are_put_at_their_images_and_taken_back(tokens: Tensor) -> None:
    word = Word.going_on(tokens)
    shared = Beginnings.shared_by(word, tokens, origins(1))
    images = torch.arange(1.0, IMAGES + 1)[:, None].expand(-1, CAPTIONS)
    found = shared.once(word.in_rows(images)[:, None])
    by_image = shared.rows.by_image(found)
    assert by_image.shape[1] < CAPTIONS
    for number, image in enumerate(by_image[..., 0], start=1):
        assert set(image.tolist()) <= {0.0, float(number)}
    assert shared.rows.in_rows(by_image).equal(found)


def test_rows_have_their_own_beginnings_where_little_is_shared(tokens: Tensor) -> None:
    alone = Word.going_on(tokens[:, :1])
    assert Beginnings.shared_by(alone, tokens[:, :1], origins(1)[:, :1]) == (alone, None, None)
    word, apart = Word.of_all(tokens + 1), torch.arange(CAPTIONS).repeat(IMAGES, 1)
    pairs = apart.clone()
    pairs[: WORTHWHILE - 1, 1] = 0
    for few in apart, pairs:
        assert Beginnings.shared_by(word, tokens + 1, few) == (word, None, None)
    pairs[WORTHWHILE - 1, 1] = 0
    assert len(Beginnings.shared_by(word, tokens + 1, pairs).first) == word.size - WORTHWHILE


def test_captions_that_are_few_have_few_places() -> None:
    tokens = torch.full((IMAGES, CAPTIONS), PAD)
    tokens[:, 2] = 4  # as at the first word, when the beams of an image are one
    slots = (tokens.flatten() != PAD).nonzero()[:, 0]
    word = Word(slice(0, IMAGES), CAPTIONS, slots, IMAGES)
    shared = Beginnings.shared_by(word, tokens, origins(1))
    rows = torch.arange(1.0, IMAGES + 1)[:, None]
    assert shared.rows.by_image(shared.once(rows)).equal(rows[:, None])
    assert shared.again(rows).equal(rows)


@pytest.mark.parametrize("filled", [1, 8])
@pytest.mark.parametrize(
    "search",
    [BeamSearch(5), BeamSearch(5, 0.0, min_length=3), Sampling(5)],
    ids=["beam", "limited beam", "sampling"],
)
def test_a_search_finds_the_same_whether_beginnings_are_shared(
    search: Search, filled: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    decoder = LSTMDecoder(5, 30, 6, 7, 4).double().eval()
    for parameter in decoder.parameters():
        torch.nn.init.normal_(parameter, std=0.8)
    memory = decoder.remember(torch.randn(IMAGES, 3, 5, dtype=torch.double))
    read: list[int] = []
    decoder.hidden_gates.register_forward_hook(lambda layer, x, gates: read.append(len(gates)))
    monkeypatch.setattr(rows, "FILLED", filled)
    found, counts = [], []
    for worthwhile in 1, 1000:
        monkeypatch.setattr(beginnings, "WORTHWHILE", worthwhile)
        read.clear()
        torch.manual_seed(1)
        found.append(search(decoder, memory))
        counts.append(sum(read))
    for part, wanted in zip(*found, strict=True):
        torch.testing.assert_close(part, wanted)
    assert counts[0] < (0.8 if isinstance(search, BeamSearch) else 1.0) * counts[1]
