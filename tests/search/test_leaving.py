"""What has ended leaves the search, and few words need no sort of all."""

import pytest
import torch
from torch import Tensor

from captioning.data.vocabulary import EOS, PAD
from captioning.models import LSTMDecoder, rows
from captioning.models.decoder import Memory, State, Step
from captioning.search import BeamSearch, Decoded, Greedy, Sampling, Search


class Counting(LSTMDecoder):
    """Ends the captions of one image more at every word, and counts images."""

    def start(self, memory: Memory, n: int) -> State:
        self.seen: list[int] = []
        images = torch.arange(len(memory.keys)).view(-1, 1, 1).expand(-1, n, -1)
        return super().start(memory, n) | {"image": images.clone()}

    def step(self, tokens: Tensor, state: State, memory: Memory) -> Step:
        step = super().step(tokens, state, memory)
        ends = state["image"][..., 0] < len(self.seen)
        self.seen.append(len(tokens))
        step.logits[:, EOS] = torch.where(step.rows.in_rows(ends), 50.0, -50.0)
        return step._replace(state=step.state | {"image": state["image"]})


@pytest.mark.parametrize(
    "search", [Greedy(), BeamSearch(2), Sampling(2)], ids=["greedy", "beam", "s"]
)
def test_images_leave_when_all_their_captions_have_ended(search: Search) -> None:
    torch.manual_seed(0)
    decoder = Counting(5, 9, 6, 7, 4).double().eval()
    annotations = torch.randn(4, 3, 5, dtype=torch.double)
    decoded = search(decoder, decoder.remember(annotations))
    lengths = (decoded.tokens != PAD).sum(-1)
    assert decoder.seen == [4, 4, 3, 2, 1]
    assert lengths[:, 0].tolist() == [2, 3, 4, 5]


@pytest.mark.parametrize("query_with_word", [False, True])
@pytest.mark.parametrize("search", [Sampling(3, top_k=1), BeamSearch(3)], ids=["sampling", "beam"])
def test_captions_leave_when_they_have_ended(
    search: Search, query_with_word: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    decoder = LSTMDecoder(5, 9, 6, 7, 4, query_with_word=query_with_word).double().eval()
    memory = decoder.remember(torch.randn(20, 3, 5, dtype=torch.double))
    read: list[int] = []
    decoder.output.register_forward_hook(lambda layer, deep, logits: read.append(len(logits)))

    def found(filled: int) -> tuple[Decoded, list[int]]:
        monkeypatch.setattr(rows, "FILLED", filled)
        torch.manual_seed(1)
        read.clear()
        return search(decoder, memory), read.copy()

    (decoded, few), (wanted, many) = found(1), found(1000)
    assert decoded.tokens.equal(wanted.tokens)
    for part, wanted_part in zip(decoded, wanted, strict=True):
        torch.testing.assert_close(part, wanted_part)
    if isinstance(search, Sampling):
        assert few == (decoded.tokens != PAD).sum((0, 1)).tolist()
    else:
        assert few[:2] == [20, 60]  # the beams of an image are one at first
        assert sum(few) < 0.95 * sum(many)
