"""The cache of a transformer: what is joined, what is copied, and what is never written into."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from captioning.data.vocabulary import BOS
from captioning.models import TransformerDecoder
from captioning.models.decoder import Decoder, Memory, State
from captioning.models.multi_head import KeysValues
from captioning.models.past_words import BLOCK, as_state, count, joined, of_state, with_words
from captioning.search import BeamSearch, Greedy, Search
from captioning.search.search import generable_log_probs
from tests.conftest import decided

B, N, H, WIDTH = 3, 2, 2, 4


def word(number: int) -> KeysValues:
    return KeysValues(*(torch.full((B, N, H, 1, WIDTH), n) for n in (float(number), -number)))


def words(number: int) -> tuple[KeysValues, ...]:
    blocks: tuple[KeysValues, ...] = ()
    for each in range(number):
        blocks = with_words(blocks, word(each))
    return blocks


@pytest.mark.parametrize("number", [1, BLOCK, BLOCK + 1, 3 * BLOCK + 2])
def test_blocks_joined_are_all_words_in_order(number: int) -> None:
    keys, values = joined(words(number))
    expected = torch.arange(float(number))
    assert keys[0, 1, 1, :, 3].equal(expected)
    assert values[2, 0, 0, :, 0].equal(-expected)


def test_a_word_more_leaves_all_but_the_last_block_in_place() -> None:
    blocks = words(3 * BLOCK - 1)
    after = with_words(blocks, word(3 * BLOCK - 1))
    full = with_words(after, word(3 * BLOCK))
    assert all(new is old for new, old in zip(after[:-1], blocks[:-1], strict=True))
    assert all(new is old for new, old in zip(full, after, strict=False))
    assert [block.keys.shape[3] for block in full] == [BLOCK, BLOCK, BLOCK, 1]


def test_a_state_gives_each_layer_its_blocks() -> None:
    first, second = words(BLOCK + 1), words(2)
    state = as_state(0, first) | as_state(11, second)
    assert len(state) == 2 * (2 + 1)
    for layer, blocks in ((0, first), (11, second)):
        found = of_state(layer, state)
        assert count(found) == count(blocks)
        for part, given in zip(found, blocks, strict=True):
            assert part.keys is given.keys
            assert part.values is given.values
    assert of_state(1, state) == ()


def made() -> TransformerDecoder:
    torch.manual_seed(0)
    return decided(TransformerDecoder(5, 8, width=6, layers=2, heads=2, inner_width=7))


def gone_on(decoder: Decoder, state: State, words: int, memory: Memory) -> tuple[State, Tensor]:
    """The state after some more words, and what is known then."""
    for each in range(words):
        tokens = torch.full((3, 2), 4 + each % 3)
        tokens[:, 1] += 1
        step = decoder.step(tokens, state, memory)
        state = step.state
    return state, step.logits


@pytest.mark.parametrize("before", [0, 2, BLOCK - 1, BLOCK, BLOCK + 3])
@torch.no_grad()
def test_captions_that_go_on_from_one_state_do_not_meet(annotations: Tensor, before: int) -> None:
    decoder = made()
    memory = decoder.remember(annotations)
    state = decoder.step(torch.full((3, 2), BOS), decoder.start(memory, 2), memory).state
    if before:
        state, _ = gone_on(decoder, state, before, memory)
    kept = {name: part.clone() for name, part in state.items()}
    one = decoder.step(torch.full((3, 2), 4), state, memory).state
    other = decoder.step(torch.full((3, 2), 7), state, memory).state
    _, after_one = gone_on(decoder, one, 3, memory)
    gone_on(decoder, other, 3, memory)
    _, once_more = gone_on(decoder, one, 3, memory)
    assert once_more.equal(after_one)
    assert all(part.equal(kept[name]) for name, part in state.items())


@pytest.mark.parametrize("search", [Greedy(40, 40), BeamSearch(4, 1.0, 40, 40)])
def test_captions_of_several_blocks_are_read_as_they_were_written(
    annotations: Tensor, search: Search
) -> None:
    decoder = made()
    memory = decoder.remember(annotations)
    found = search(decoder, memory)
    assert found.tokens.shape[2] == 40 > 2 * BLOCK
    read = F.pad(found.tokens[..., :-1], (1, 0), value=BOS)
    logits, weights = decoder.teacher_forcing(memory, read)
    log_probs = generable_log_probs(logits).gather(3, found.tokens[..., None])[..., 0]
    torch.testing.assert_close(log_probs.to(found.log_probs), found.log_probs)
    torch.testing.assert_close(weights, found.weights)
