import math
from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from captioning.models import Decoder
from captioning.search import Sampling
from tests.search.test_decoding import searched

PROBABILITIES = {4: 0.4, 5: 0.3, 6: 0.2, 7: 0.1}
DRAWN = 8000


def certain(decoder: Decoder, probabilities: dict[int, float]) -> Decoder:
    """The decoder, scoring every next word by the same probabilities."""
    decoder.output.weight.data.zero_()
    decoder.output.bias.data.fill_(-torch.inf)
    for token, probability in probabilities.items():
        decoder.output.bias.data[token] = math.log(probability)
    return decoder


def frequencies(decoder: Decoder, annotations: Tensor, **options: Any) -> dict[int, float]:
    """How often each word is drawn among many one-word captions."""
    search = Sampling(captions=DRAWN, max_length=1, **options).for_images([b"a photo"])
    drawn = searched(search, certain(decoder, PROBABILITIES), annotations[:1]).tokens.flatten()
    return {token: count / DRAWN for token, count in sorted(Counter(drawn.tolist()).items())}


@pytest.mark.parametrize("seed", [None, 5])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_words_are_drawn_by_their_probability(
    decoder: Decoder, annotations: Tensor, temperature: float, seed: int | None
) -> None:
    tempered = {token: p ** (1 / temperature) for token, p in PROBABILITIES.items()}
    expected = {token: p / sum(tempered.values()) for token, p in tempered.items()}
    drawn = frequencies(decoder, annotations, temperature=temperature, seed=seed)
    assert drawn == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize("seed", [None, 5])
@pytest.mark.parametrize(
    ("limit", "kept"),
    [
        ({"top_p": 0.01}, {4}),
        ({"top_p": 0.39}, {4}),
        ({"top_p": 0.5}, {4, 5}),
        ({"top_p": 0.75}, {4, 5, 6}),
        ({"top_p": 0.95}, {4, 5, 6, 7}),
        ({"top_k": 2}, {4, 5}),
    ],
    ids=str,
)
def test_top_p_keeps_the_fewest_words_of_that_mass_top_k_the_best(
    decoder: Decoder, annotations: Tensor, limit: dict[str, Any], kept: set[int], seed: int | None
) -> None:
    mass = sum(PROBABILITIES[token] for token in kept)
    expected = {token: PROBABILITIES[token] / mass for token in kept}
    assert frequencies(decoder, annotations, **limit, seed=seed) == pytest.approx(
        expected, abs=0.02
    )


def test_with_a_seed_an_image_gets_its_captions_in_any_batch(
    decoder: Decoder, annotations: Tensor
) -> None:
    images = [b"0", b"1", b"2"]

    def drawn(places: list[int], seed: int = 7) -> Tensor:
        search = Sampling(4, temperature=2.0, max_length=6, seed=seed)
        chosen = search.for_images([images[place] for place in places])
        return F.pad(searched(chosen, decoder, annotations[places]).tokens, (0, 6))[..., :6]

    together = drawn([0, 1, 2])
    assert drawn([2, 0]).equal(together[[2, 0]])
    assert drawn([1]).equal(together[[1]])
    assert not drawn([1], seed=8).equal(together[[1]])
    images[1] = b"another"
    assert not drawn([1]).equal(together[[1]])
