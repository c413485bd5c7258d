import pytest
import torch
from torch import Tensor

from captioning.data.vocabulary import PAD
from captioning.kernels.active_rows import ActiveRows
from captioning.kernels.topk import BLOCK, topk_continuations
from captioning.search import beam

IMAGES, CAPTIONS, K = 7, 5, 5


@pytest.fixture(params=[0, 23], ids=["all active", "some ended"])
def tokens(request: pytest.FixtureRequest) -> Tensor:
    """Last tokens of captions, of which so many have ended."""
    tokens = torch.full((IMAGES * CAPTIONS,), 4)
    order = torch.randperm(len(tokens) - 1, generator=torch.Generator().manual_seed(2))
    tokens[1 + order[: request.param]] = PAD  # the first goes on
    return tokens.view(IMAGES, CAPTIONS)


@pytest.mark.parametrize("vocabulary", [3, BLOCK, 11 * BLOCK, 11 * BLOCK + 5])
def test_the_best_words_are_those_of_the_plain_search(tokens: Tensor, vocabulary: int) -> None:
    generator = torch.Generator().manual_seed(1)
    rows = ActiveRows.of(tokens)
    scores = torch.randn(rows.size, vocabulary, generator=generator)
    scores[0, -1] = 9.0  # behind the last whole block
    scores[1, 2:] = -torch.inf
    totals = torch.randn(IMAGES, CAPTIONS, generator=generator)
    totals = totals.masked_fill(tokens == PAD, -torch.inf)
    found = topk_continuations(scores, rows, totals, K)
    plain = beam.topk_continuations(rows.by_image(scores), totals, K)
    assert found.totals.equal(plain.totals)
    real = ~plain.totals.isneginf()
    for part, wanted in zip(found, plain, strict=True):
        assert part[real].equal(wanted[real])
