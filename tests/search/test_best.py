import pytest
import torch
from torch import Tensor

from captioning.data.vocabulary import PAD
from captioning.models import LSTMDecoder
from captioning.models.rows import Word
from captioning.search import BeamSearch
from captioning.search.best import BLOCK, best

IMAGES, CAPTIONS, K = 7, 5, 5


@pytest.fixture(params=[0, 23], ids=["all go on", "some have ended"])
def tokens(request: pytest.FixtureRequest) -> Tensor:
    """Last tokens of captions, of which so many have ended."""
    tokens = torch.full((IMAGES * CAPTIONS,), 4)
    order = torch.randperm(len(tokens) - 1, generator=torch.Generator().manual_seed(2))
    tokens[1 + order[: request.param]] = PAD  # the first goes on
    return tokens.view(IMAGES, CAPTIONS)


@pytest.mark.parametrize("vocabulary", [3, BLOCK, 11 * BLOCK, 11 * BLOCK + 5])
def test_the_best_words_are_those_of_a_whole_sort(tokens: Tensor, vocabulary: int) -> None:
    generator = torch.Generator().manual_seed(1)
    rows = Word.going_on(tokens)
    scores = torch.randn(rows.size, vocabulary, generator=generator)
    scores[0, -1] = 9.0  # behind the last whole block
    scores[1, 2:] = -torch.inf
    totals = torch.randn(IMAGES, CAPTIONS, generator=generator)
    totals = totals.masked_fill(tokens == PAD, -torch.inf)
    found = best(scores, rows, totals, K)

    sums = rows.by_image(scores) + totals[:, :, None]
    assert found.sums.equal(sums.flatten(1).topk(K).values)
    image = torch.arange(IMAGES)[:, None]
    real = ~found.sums.isneginf()
    assert sums[image, found.captions, found.words][real].equal(found.sums[real])
    of_words = rows.by_image(scores)[image, found.captions, found.words]
    assert found.scores[real].equal(of_words[real])
    places = found.captions * vocabulary + found.words
    for of_image, is_real in zip(places, real, strict=True):
        assert len(of_image[is_real].unique()) == is_real.sum()


def test_a_beam_that_cannot_be_filled_is_no_caption(
    decoder: LSTMDecoder, annotations: Tensor
) -> None:
    search = BeamSearch(100, max_length=3)  # of eight tokens four are words
    decoded = search(decoder.eval(), decoder.remember(annotations))
    captions = 4 + 4**2 + 4**3
    assert decoded.scores[:, :captions].isfinite().all()
    assert decoded.scores[:, captions:].isneginf().all()
    for of_image in decoded.tokens[:, :captions].tolist():
        assert len({tuple(tokens) for tokens in of_image}) == captions
