"""The kernels of searches against the plain ones."""

from typing import Any

import pytest
import torch
from torch import Tensor

from captioning.data.vocabulary import EOS, PAD
from captioning.kernels import accelerated, accelerated_search
from captioning.models import Attention, DotProductAttention, LSTMDecoder
from captioning.models.attention import AdditiveAttention
from captioning.models.decoder import Decoder, Memory, State, Step
from captioning.search import BeamSearch, Greedy, Sampling, Search

IMAGES = 20
SEARCHES = {
    "greedy": Greedy(),
    "limited greedy": Greedy(max_length=9, min_length=4, no_repeat_ngram=2),
    "beam": BeamSearch(5),
    "beam by probability": BeamSearch(4, length_penalty=0.0),
    "limited beam": BeamSearch(3, max_length=7, min_length=3, no_repeat_ngram=2),
    "beams that cannot be filled": BeamSearch(40, max_length=2),
    "sampling": Sampling(3, top_k=1),
}
every_search = pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)


@every_search
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"query_with_word": True},
        {"smooth_keys": True},
        {"scalar_gate": False, "deep_output": False, "start_from_mean": False},
    ],
    ids=["paper", "query with word", "smooth keys", "ablations"],
)
@pytest.mark.parametrize("attention", [AdditiveAttention, DotProductAttention])
def test_captions_and_scores_are_those_of_the_plain_search(
    search: Search, options: dict[str, Any], attention: type[Attention]
) -> None:
    torch.manual_seed(0)
    decoder = LSTMDecoder(5, 30, 6, 7, 4, attention, **options)
    for parameter in decoder.double().eval().parameters():
        torch.nn.init.normal_(parameter, std=0.8)
    annotations = torch.randn(IMAGES, 4, 5, dtype=torch.double)
    fast = accelerated(decoder)
    found = accelerated_search(search)(fast, fast.remember(annotations))
    wanted = search(decoder, decoder.remember(annotations))
    assert found.tokens.equal(wanted.tokens)
    for part, wanted_part in zip(found, wanted, strict=True):
        torch.testing.assert_close(part, wanted_part, rtol=1e-10, atol=1e-10)


class EndingOneByOne(Decoder):
    """Ends the captions of one image more at every word; knows of no kernel."""

    def start(self, memory: Memory, n: int) -> State:
        images = torch.arange(memory.images)[:, None].expand(-1, n)
        return {"image": images.clone(), "words": torch.zeros_like(images)}

    def step(self, tokens: Tensor, state: State, memory: Memory) -> Step:
        self.batches = [*getattr(self, "batches", []), len(tokens)]
        logits = torch.linspace(0, 1, self.vocab_size).expand(*tokens.shape, -1).clone()
        ends = state["image"] < state["words"]
        logits[..., EOS] = torch.where(ends, 50.0, -50.0)
        weights = memory.annotations.mean(2).softmax(1)[:, None].expand(-1, tokens.shape[1], -1)
        return Step(logits, weights, state | {"words": state["words"] + 1})


@pytest.mark.parametrize(
    "search", [Greedy(), BeamSearch(2), Sampling(2)], ids=["greedy", "beam", "sampling"]
)
def test_images_leave_when_all_their_captions_have_ended(search: Search) -> None:
    decoder, annotations = EndingOneByOne(3, 9), torch.randn(4, 3, 3)
    decoded = accelerated_search(search)(decoder, decoder.remember(annotations))
    assert decoder.batches == [4, 4, 3, 2, 1]
    assert (decoded.tokens != PAD).sum(2)[:, 0].tolist() == [2, 3, 4, 5]
    wanted = search(decoder, decoder.remember(annotations))
    torch.testing.assert_close(decoded.weights, wanted.weights)


def test_a_search_of_the_users_own_has_no_kernel() -> None:
    class Shouting(Greedy):
        pass

    search = Shouting()
    assert accelerated_search(search) is search
