from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from captioning.errors import InputError
from captioning.kernels import accelerate_search
from captioning.models import LSTMDecoder
from captioning.search import BeamSearch, DiverseBeamSearch, Greedy, Sampling, Search


def test_a_shortest_length_above_the_longest_is_an_error() -> None:
    with pytest.raises(InputError, match="min_length 9 is greater than max_length 8"):
        Greedy(min_length=9, max_length=8)


def test_a_changed_search_keeps_the_other_limits() -> None:
    changed = BeamSearch(5, 0.7, max_length=9).replace(width=2, min_length=3)
    assert changed.config == BeamSearch(2, 0.7, max_length=9, min_length=3).config


def test_a_search_of_another_kind_keeps_the_limits_that_both_have() -> None:
    changed = BeamSearch(5, 0.7, max_length=9, no_repeat_ngram=2).replace(Sampling, top_k=3)
    assert changed.config == Sampling(top_k=3, max_length=9, no_repeat_ngram=2).config


def test_a_setting_that_a_search_does_not_have_is_named() -> None:
    with pytest.raises(InputError, match="Greedy has no top k; it has max length, min length"):
        Greedy().replace(top_k=3)


@pytest.mark.parametrize("accelerates", [False, True], ids=["plain", "kernels"])
@pytest.mark.parametrize(
    "search", [Sampling(40_000), BeamSearch(1000, max_length=1000)], ids=["samples", "beams"]
)
def test_captions_that_would_fill_the_memory_are_refused_before_they_take_it(
    search: Search, accelerates: bool
) -> None:
    decoder = LSTMDecoder(5, 20_000, embedding_dim=4, hidden_dim=4, attention_dim=4)
    memory = decoder.remember(torch.zeros(1, 200, 5))
    chosen = accelerate_search(search) if accelerates else search
    with pytest.raises(InputError, match="ask for fewer captions"):
        chosen(decoder, memory)


@pytest.mark.parametrize(
    ("search", "message"),
    [
        (DiverseBeamSearch(groups=1000, width=1000), "too much memory or time"),
        (DiverseBeamSearch(groups=30, max_length=1000), "ask for at most 4$"),
    ],
)
def test_captions_that_would_take_hours_are_refused(search: Search, message: str) -> None:
    decoder = LSTMDecoder(5, 10, embedding_dim=4, hidden_dim=4, attention_dim=4)
    with pytest.raises(InputError, match=message):
        search(decoder, decoder.remember(torch.zeros(1, 1, 5)))


def test_forbidding_long_repeats_takes_no_more_memory_than_the_captions() -> None:
    class Largest(TorchDispatchMode):
        numbers = 0

        def __torch_dispatch__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            made = function(*args, **(kwargs or {}))
            self.numbers = max(self.numbers, made.numel())
            return made

    tokens, log_probs = torch.zeros(2, 3, 40, dtype=torch.long), torch.zeros(2, 3, 9)
    with Largest() as largest:
        Greedy(no_repeat_ngram=20).forbid(log_probs, tokens)
    assert largest.numbers <= tokens.numel()
    assert log_probs[..., 0].isneginf().all()
