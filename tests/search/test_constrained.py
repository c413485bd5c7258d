"""Constrained beam search against an enumeration of all captions."""

from typing import Any

import pytest
import torch
from torch import Tensor

from captioning.data.vocabulary import EOS, PAD
from captioning.errors import InputError
from captioning.models import Decoder
from captioning.search import BeamSearch, ConstrainedBeamSearch
from tests.search.test_decoding import check_brute_force, every_caption, favouring, searched

LENGTH = 4

CONSTRAINTS: dict[str, dict[str, Any]] = {
    "begin": {"begin": [5, 4]},
    "avoid a word": {"avoid": [[6]]},
    "avoid phrases": {"avoid": [[4, 5], [5, 5, 4], [7, 7]]},
    "must say a word": {"must_say": [[7]]},
    "must say words and phrases": {"must_say": [[7], [4, 4]]},
    "must say phrases that overlap": {"must_say": [[4, 5], [5, 6], [6, 4]]},
    "must say a phrase within another": {"must_say": [[5], [4, 5, 6]]},
    "must say a phrase that starts again inside itself": {"must_say": [[4, 4, 5]]},
    "all of them": {"begin": [5], "avoid": [[6, 6], [4, 7], [5, 5]], "must_say": [[7], [5, 4]]},
    "all within the beginning": {"begin": [4, 5], "avoid": [[6]], "must_say": [[4], [5]]},
}
every_constraint = pytest.mark.parametrize("constraints", CONSTRAINTS.values(), ids=CONSTRAINTS)


def says(words: list[int], phrase: list[int]) -> bool:
    return any(words[n : n + len(phrase)] == phrase for n in range(len(words)))


def meets(tokens: list[int], begin: Any = (), avoid: Any = (), must_say: Any = ()) -> bool:
    words = [token for token in tokens if token not in (EOS, PAD)]
    begins = words[: len(begin)] == list(begin)
    avoids = not any(says(words, phrase) for phrase in avoid)
    return begins and avoids and all(says(words, phrase) for phrase in must_say)


@every_constraint
@pytest.mark.parametrize("seed", [1, 2])
def test_a_wide_beam_is_brute_force(
    decoder: Decoder, annotations: Tensor, constraints: dict[str, Any], seed: int
) -> None:
    torch.manual_seed(seed)
    for parameter in decoder.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    [every] = every_caption(LENGTH)
    captions = every[torch.tensor([meets(tokens, **constraints) for tokens in every.tolist()])]
    assert 0 < len(captions) < len(every)
    search = ConstrainedBeamSearch(**constraints, width=len(every), max_length=LENGTH)
    check_brute_force(search, decoder, annotations, captions)


@every_constraint
@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("favoured", [EOS, 6], ids=["that ends at once", "that loves one word"])
def test_a_narrow_beam_meets_unlikely_constraints(
    decoder: Decoder, annotations: Tensor, constraints: dict[str, Any], width: int, favoured: int
) -> None:
    search = ConstrainedBeamSearch(**constraints, width=width, max_length=LENGTH)
    found = searched(search, favouring(decoder, favoured, by=20.0), annotations)
    assert found.scores[:, 0].isfinite().all()
    for tokens in found.tokens[found.scores.isfinite()].tolist():
        assert meets(tokens, **constraints)


def test_without_constraints_it_is_beam_search(decoder: Decoder, annotations: Tensor) -> None:
    options: dict[str, Any] = {"width": 3, "max_length": 7, "min_length": 2, "no_repeat_ngram": 2}
    found = searched(ConstrainedBeamSearch(**options), decoder, annotations)
    wanted = searched(BeamSearch(**options), decoder, annotations)
    assert found.tokens.equal(wanted.tokens)
    assert found.scores.equal(wanted.scores)


def test_words_that_must_be_said_may_repeat(decoder: Decoder, annotations: Tensor) -> None:
    search = ConstrainedBeamSearch(
        begin=[4, 4], must_say=[[5, 4]], max_length=8, no_repeat_ngram=1, min_length=8
    )
    for tokens in searched(search, decoder, annotations).tokens[:, 0].tolist():
        words = [token for token in tokens if token not in (EOS, PAD)]
        assert sorted(words) == [4, 4, 4, 5, 6, 7]
        assert meets(tokens, begin=[4, 4], must_say=[[5, 4]])


@pytest.mark.parametrize(
    ("constraints", "error"),
    [
        ({"avoid": [[5]], "must_say": [[4, 5]]}, "words to avoid; drop either"),
        ({"avoid": [[4, 5]], "begin": [6, 4, 5]}, "words to avoid; drop either"),
        ({"must_say": [[4, 4], [5, 5]], "begin": [6]}, "takes 5 words, but .* at most 4; allow"),
        ({"begin": [4, 4, 4, 4, 4]}, "takes 5 words, but .* at most 4; allow"),
        ({"must_say": [[word] for word in range(4, 40)]}, "too many words to say"),
    ],
)
def test_constraints_that_no_caption_meets_are_refused(
    constraints: dict[str, Any], error: str
) -> None:
    with pytest.raises(InputError, match=error):
        ConstrainedBeamSearch(**constraints, max_length=4)
