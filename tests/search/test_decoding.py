import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from captioning.data.vocabulary import BOS, EOS, PAD, UNK
from captioning.models import Decoder
from captioning.search import (
    BeamSearch,
    ConstrainedBeamSearch,
    Decoded,
    DiverseBeamSearch,
    Greedy,
    Sampling,
    Search,
)
from captioning.search.beam import BLOCK_SIZE, largest

WORDS = range(4, 8)
MASK = torch.tensor([[True] * 6, [True] * 3 + [False] * 3, [False] * 5 + [True]])
SEARCHES = {
    "greedy": Greedy(max_length=6),
    "beam": BeamSearch(3, max_length=6),
    "beam by probability": BeamSearch(4, length_penalty=0.0, max_length=6),
    "sampling": Sampling(3, max_length=6),
    "nucleus": Sampling(3, temperature=2.0, top_k=3, top_p=0.9, max_length=6),
    "diverse": DiverseBeamSearch(2, 0.7, groups=4, diversity=2.0, max_length=6),
}
every_search = pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)


def searched(
    search: Search, decoder: Decoder, annotations: Tensor, mask: Tensor | None = None
) -> Decoded:
    torch.manual_seed(0)
    return search(decoder, decoder.remember(annotations, mask))


def forced(decoder: Decoder, annotations: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Log probabilities (B, N, T), weights (B, N, T, L) of captions, and True for real tokens.

    By teacher forcing, with the words that are never generated left out of the distribution.
    """
    begin = torch.full_like(tokens[:, :, :1], BOS)
    logits, weights = decoder(annotations, torch.cat([begin, tokens[:, :, :-1]], dim=2))
    logits[..., [PAD, BOS, UNK]] = -torch.inf
    log_probs = logits.log_softmax(dim=-1).gather(3, tokens[..., None]).squeeze(3)
    return log_probs.masked_fill(tokens == PAD, 0.0), weights, tokens != PAD


def every_caption(max_length: int) -> Tensor:
    """All captions of one word or more: (1, N, T)."""
    ended = [
        [*words, EOS] + [PAD] * (max_length - length - 1)
        for length in range(1, max_length)
        for words in itertools.product(WORDS, repeat=length)
    ]
    endless = map(list, itertools.product(WORDS, repeat=max_length))
    return torch.tensor([[*ended, *endless]])


def favouring(decoder: Decoder, *tokens: int, by: float = 100.0) -> Decoder:
    """The decoder with the scores of some tokens raised."""
    decoder.output.bias.data[list(tokens)] += by
    return decoder


def lengths(decoded: Decoded) -> list[int]:
    """The number of words of each caption, EOS not counted."""
    return ((decoded.tokens != PAD) & (decoded.tokens != EOS)).sum(dim=2).flatten().tolist()


@pytest.mark.parametrize(
    "search", [BeamSearch(1, max_length=12), Sampling(2, top_k=1, max_length=12)]
)
def test_a_beam_of_one_and_drawing_the_best_word_are_greedy(
    decoder: Decoder, annotations: Tensor, search: Search
) -> None:
    greedy = searched(Greedy(max_length=12), decoder, annotations)
    found = searched(search, decoder, annotations)
    assert found.tokens.equal(greedy.tokens.expand_as(found.tokens))
    torch.testing.assert_close(found.scores, greedy.scores.expand_as(found.scores))


def check_brute_force(
    search: Search, decoder: Decoder, annotations: Tensor, captions: Tensor
) -> None:
    """The search's captions are these, (N, T), the best first, and then none."""
    found = searched(search, decoder, annotations)
    log_probs, _, real = forced(decoder, annotations, captions.expand(3, -1, -1))
    scores = log_probs.sum(-1) / real.sum(-1) ** search.length_penalty
    scores, order = scores.sort(descending=True)
    count = len(captions)
    torch.testing.assert_close(found.scores[:, :count], scores, rtol=1e-6, atol=1e-6)
    assert found.tokens[:, :count].equal(captions[order])
    assert found.scores[:, count:].isneginf().all()


@pytest.mark.parametrize(("length_penalty", "max_length"), [(0.0, 4), (0.7, 3), (1.0, 3)])
def test_a_wide_beam_is_brute_force(
    decoder: Decoder, annotations: Tensor, length_penalty: float, max_length: int
) -> None:
    [captions] = every_caption(max_length)
    search = BeamSearch(len(captions) + 9, length_penalty, max_length=max_length)
    check_brute_force(search, decoder, annotations, captions)


def beam_written_out(
    decoder: Decoder, annotations: Tensor, search: BeamSearch
) -> list[tuple[list[int], float]]:
    """The captions of one image and their scores, by a beam search over plain lists."""

    def score(caption: list[int]) -> float:
        log_probs, _, _ = forced(decoder, annotations, torch.tensor([[caption]]))
        return log_probs.sum().item() / len(caption) ** search.length_penalty

    beams: list[list[int]] = [[]]
    for _ in range(search.max_length):
        longer = [
            caption
            for beam in beams
            for caption in (
                [beam]
                if EOS in beam
                else [[*beam, token] for token in ([EOS, *WORDS] if beam else WORDS)]
            )
        ]
        beams = sorted(longer, key=score, reverse=True)[: search.width]
    return [(beam, score(beam)) for beam in beams]


@pytest.mark.parametrize("count", [7, BLOCK_SIZE, 5 * BLOCK_SIZE, 9 * BLOCK_SIZE + 7])
def test_the_largest_in_blocks_are_the_largest(count: int) -> None:
    scores = torch.randn(3, count).masked_fill(torch.rand(3, count) < 0.2, -torch.inf)
    for found, wanted in zip(largest(scores, 4), scores.topk(4), strict=True):
        assert found.equal(wanted)


def test_a_narrow_beam_is_a_search_written_out(decoder: Decoder, annotations: Tensor) -> None:
    search = BeamSearch(3, length_penalty=0.7, max_length=5)
    found = searched(search, decoder, annotations)
    for b in range(3):
        captions, scores = zip(
            *beam_written_out(decoder, annotations[b : b + 1], search), strict=True
        )
        rows = found.tokens[b].tolist()
        assert [[token for token in row if token != PAD] for row in rows] == list(captions)
        assert found.scores[b].tolist() == pytest.approx(scores)


@pytest.mark.parametrize(
    "search",
    [
        Greedy(max_length=8),
        BeamSearch(3, max_length=8),
        BeamSearch(3, 0.7, max_length=8, no_repeat_ngram=2),
        Sampling(2, top_k=1, max_length=8),
        ConstrainedBeamSearch(
            4, max_length=8, begin=[5], avoid=[[6, 6], [4, 7], [5, 5]], must_say=[[7], [5, 4]]
        ),
    ],
    ids=["greedy", "beam", "beam without repeats", "sampling", "constrained"],
)
def test_a_batch_equals_its_images_one_by_one(
    decoder: Decoder, annotations: Tensor, search: Search
) -> None:
    favouring(decoder, EOS, by=2.0)  # so that captions end at different times
    together = searched(search, decoder, annotations, MASK)
    for b in range(3):
        alone = searched(search, decoder, annotations[b : b + 1], MASK[b : b + 1])
        length = alone.tokens.shape[2]
        assert together.tokens[b, :, :length].equal(alone.tokens[0])
        assert (together.tokens[b, :, length:] == PAD).all()
        torch.testing.assert_close(together.scores[b], alone.scores[0])
        torch.testing.assert_close(together.log_probs[b, :, :length], alone.log_probs[0])


@every_search
def test_pad_bos_and_unk_are_never_generated(
    decoder: Decoder, annotations: Tensor, search: Search
) -> None:
    decoded = searched(search, favouring(decoder, PAD, BOS, UNK), annotations)
    assert not torch.isin(decoded.tokens, torch.tensor([BOS, UNK])).any()
    ended = (decoded.tokens == EOS).cumsum(dim=2) - (decoded.tokens == EOS).long()
    assert (decoded.tokens == PAD).equal(ended > 0)


@every_search
def test_a_caption_that_meets_no_eos_is_returned(
    decoder: Decoder, annotations: Tensor, search: Search
) -> None:
    decoded = searched(search, favouring(decoder, EOS, by=-100.0), annotations)
    assert lengths(decoded) == [6] * decoded.scores.numel()
    assert decoded.scores.isfinite().all()


@pytest.mark.parametrize(
    ("kind", "min_length"), [(Greedy, 0), (BeamSearch, 1), (Sampling, 4), (BeamSearch, 4)]
)
def test_a_caption_has_the_minimum_length(
    decoder: Decoder, annotations: Tensor, kind: type[Search], min_length: int
) -> None:
    options: dict[str, Any] = {"min_length": min_length, "max_length": 6}
    search = BeamSearch(1, **options) if kind is BeamSearch else kind(**options)
    decoded = searched(search, favouring(decoder, EOS), annotations)
    assert lengths(decoded) == [min_length] * 3


@pytest.mark.parametrize(("kind", "size"), [(Greedy, 1), (BeamSearch, 2), (Sampling, 3)])
def test_a_forbidden_ngram_occurs_no_second_time(
    decoder: Decoder, annotations: Tensor, kind: type[Search], size: int
) -> None:
    favouring(favouring(decoder, 4, by=10.0), EOS, by=-20.0)
    repeats = []
    for forbidden in (0, size):
        options: dict[str, Any] = {"max_length": 12, "no_repeat_ngram": forbidden}
        for row in searched(kind(**options), decoder, annotations).tokens.flatten(0, 1).tolist():
            words = [token for token in row if token not in (EOS, PAD)]
            grams = [tuple(words[i : i + size]) for i in range(len(words) - size + 1)]
            repeats.append((forbidden, len(grams) - len(set(grams))))
    assert max(count for forbidden, count in repeats if not forbidden) > 0
    assert max(count for forbidden, count in repeats if forbidden) == 0


@every_search
def test_scores_and_weights_are_those_of_teacher_forcing(
    decoder: Decoder, annotations: Tensor, search: Search
) -> None:
    decoded = searched(search, decoder, annotations)
    log_probs, weights, real = forced(decoder, annotations, decoded.tokens)
    torch.testing.assert_close(decoded.log_probs, log_probs)
    expected = log_probs.sum(-1) / real.sum(-1) ** search.length_penalty
    torch.testing.assert_close(decoded.scores, expected)
    assert decoded.scores.equal(decoded.scores.sort(dim=1, descending=True).values)
    torch.testing.assert_close(decoded.weights[real], weights[real])


def test_a_changed_search_keeps_the_other_limits() -> None:
    changed = BeamSearch(5, 0.7, max_length=9).replace(width=2, min_length=3)
    assert changed.config == BeamSearch(2, 0.7, max_length=9, min_length=3).config


def test_a_search_of_another_kind_keeps_common_limits() -> None:
    changed = BeamSearch(5, 0.7, max_length=9, no_repeat_ngram=2).replace(Sampling, top_k=3)
    assert changed.config == Sampling(top_k=3, max_length=9, no_repeat_ngram=2).config
