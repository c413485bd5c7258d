import pytest

from captioning.errors import InputError
from captioning.search import BeamSearch, Greedy, Sampling


def test_a_shortest_length_above_the_longest_is_an_error() -> None:
    with pytest.raises(InputError, match="min_length 9 is greater than max_length 8"):
        Greedy(min_length=9, max_length=8)


def test_a_changed_search_keeps_the_other_limits() -> None:
    changed = BeamSearch(5, 0.7, max_length=9).replace(width=2, min_length=3)
    assert changed.config == BeamSearch(2, 0.7, max_length=9, min_length=3).config


def test_a_search_of_another_kind_keeps_common_limits() -> None:
    changed = BeamSearch(5, 0.7, max_length=9, no_repeat_ngram=2).replace(Sampling, top_k=3)
    assert changed.config == Sampling(top_k=3, max_length=9, no_repeat_ngram=2).config


def test_a_setting_that_a_search_does_not_have_is_named() -> None:
    with pytest.raises(InputError, match="Greedy has no top k; it has max length, min length"):
        Greedy().replace(top_k=3)
