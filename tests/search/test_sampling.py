import math
from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from captioning.models import Decoder
from captioning.search import Decoded, Greedy, Sampling, Search

PROBABILITIES = {4: 0.4, 5: 0.3, 6: 0.2, 7: 0.1}
DRAWN = 8000


def searched(search: Search, decoder: Decoder, annotations: Tensor) -> Decoded:
    torch.manual_seed(0)
    return search(decoder, decoder.remember(annotations))


def certain(decoder: Decoder, probabilities: dict[int, float]) -> Decoder:
    """The decoder, scoring every next word by the same probabilities."""
    decoder.output.weight.data.zero_()
    decoder.output.bias.data.fill_(-torch.inf)
    for token, probability in probabilities.items():
        decoder.output.bias.data[token] = math.log(probability)
    return decoder


def test_sampling_the_best_word_only_is_greedy(decoder: Decoder, annotations: Tensor) -> None:
    greedy = searched(Greedy(max_length=9), decoder, annotations)
    sampled = searched(Sampling(2, top_k=1, max_length=9), decoder, annotations)
    for n in range(2):
        assert sampled.tokens[:, n].equal(greedy.tokens[:, 0])


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
    ("top_p", "nucleus"),
    [(0.01, {4}), (0.39, {4}), (0.5, {4, 5}), (0.75, {4, 5, 6}), (0.95, {4, 5, 6, 7})],
)
def test_top_p_keeps_the_fewest_words_of_that_mass(
    decoder: Decoder, annotations: Tensor, top_p: float, nucleus: set[int], seed: int | None
) -> None:
    mass = sum(PROBABILITIES[token] for token in nucleus)
    expected = {token: PROBABILITIES[token] / mass for token in nucleus}
    drawn = frequencies(decoder, annotations, top_p=top_p, seed=seed)
    assert drawn == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize("seed", [None, 5])
def test_top_k_keeps_the_best_words(
    decoder: Decoder, annotations: Tensor, seed: int | None
) -> None:
    drawn = frequencies(decoder, annotations, top_k=2, seed=seed)
    assert drawn == pytest.approx({4: 4 / 7, 5: 3 / 7}, abs=0.02)


def test_samples_repeat_themselves_by_seed_and_differ_within_one(
    decoder: Decoder, annotations: Tensor
) -> None:
    first, again = (searched(Sampling(5), decoder, annotations) for _ in range(2))
    assert first.tokens.equal(again.tokens)
    assert len(first.tokens[0].unique(dim=0)) > 1


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
