"""Searches that say some words once, against an enumeration of all captions."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from captioning.data.vocabulary import EOS, Vocabulary
from captioning.models import Decoder
from captioning.search import (
    BeamSearch,
    ConstrainedBeamSearch,
    DiverseBeamSearch,
    Greedy,
    Sampling,
    Search,
)
from tests.search.test_decoding import check_brute_force, every_caption, favouring, searched

VOCABULARY = Vocabulary(["four", "five", "six", "seven"], repeatable=["five"])
SEARCHES = {
    "greedy": Greedy(max_length=8, repeats=False),
    "sampling": Sampling(5, max_length=8, repeats=False),
    "beam": BeamSearch(3, max_length=8, repeats=False),
    "diverse": DiverseBeamSearch(groups=3, max_length=8, repeats=False),
    "constrained": ConstrainedBeamSearch(must_say=[[5, 5]], width=3, max_length=8, repeats=False),
}


def says_again(tokens: list[int]) -> bool:
    said = [token for token in tokens if token in (4, 6, 7)]
    return len(set(said)) < len(said)


@pytest.mark.parametrize("kind", [BeamSearch, ConstrainedBeamSearch])
def test_a_wide_beam_is_brute_force_without_repeats(
    decoder: Decoder, annotations: Tensor, kind: type[BeamSearch]
) -> None:
    [every] = every_caption(4)
    captions = torch.tensor([tokens for tokens in every.tolist() if not says_again(tokens)])
    assert 0 < len(captions) < len(every)
    search = kind(width=len(every), max_length=4, repeats=False).for_words(VOCABULARY)
    check_brute_force(search, decoder, annotations, captions)


@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
def test_no_search_says_these_words_again(
    decoder: Decoder, annotations: Tensor, search: Search
) -> None:
    favouring(favouring(decoder, 4, 5, by=6.0), EOS, by=-30.0)
    free, bound = (
        searched(each, decoder, annotations).tokens.flatten(0, 1).tolist()
        for each in (search, search.for_words(VOCABULARY))
    )
    assert any(map(says_again, free))
    assert not any(map(says_again, bound))
    assert any(tokens.count(5) > 1 for tokens in bound)


def test_a_phrase_that_must_be_said_is_said_again(decoder: Decoder, annotations: Tensor) -> None:
    search = ConstrainedBeamSearch(begin=[4, 4], must_say=[[6, 4]], max_length=8, repeats=False)
    found = searched(search.for_words(VOCABULARY), favouring(decoder, EOS, by=-30.0), annotations)
    for tokens in found.tokens[:, 0].tolist():
        assert tokens[:2] == [4, 4]
        assert (6, 4) in pairwise(tokens)
        assert tokens.count(4) == 3
        assert tokens.count(7) < 2


@pytest.mark.parametrize("repeats", [True, False])
@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
def test_a_word_follows_itself_only_if_people_say_it_twice_in_a_row(
    decoder: Decoder, annotations: Tensor, search: Search, repeats: bool
) -> None:
    favouring(favouring(decoder, 4, 5, by=6.0), EOS, by=-30.0)
    pairs = []
    for immediate_repeats in (["four"], []):
        vocabulary = replace(
            VOCABULARY, repeatable=["four", "five"], immediate_repeats=immediate_repeats
        )
        bound = search.replace(repeats=repeats).for_words(vocabulary)
        captions = searched(bound, decoder, annotations).tokens.flatten(0, 1).tolist()
        pairs.append({pair for tokens in captions for pair in pairwise(tokens)})
    assert (4, 4) in pairs[0]
    assert (4, 4) not in pairs[1]
