import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from captioning.data.vocabulary import BOS, EOS, PAD, UNK
from captioning.models import Decoder
from captioning.search import BeamSearch
from captioning.search.search import find_alternatives, find_substitutes


def stepped(decoder: Decoder, annotations: Tensor, tokens: Tensor) -> Tensor:
    """Probabilities of every token in each place, (B, N, T, V), one step at a time."""
    memory = decoder.remember(annotations)
    state = decoder.start(memory, tokens.shape[1])
    last, probabilities = torch.full_like(tokens[:, :, 0], BOS), []
    for following in tokens.unbind(2):
        step = decoder.step(last, state, memory)
        allowed = step.logits.clone()
        allowed[..., [PAD, BOS, UNK]] = -torch.inf
        probabilities.append(allowed.softmax(-1))
        last, state = following, step.state
    return torch.stack(probabilities, dim=2)


@pytest.mark.parametrize("k", [1, 3])
def test_runners_up_are_the_best_other_words_of_plain_steps(
    decoder: Decoder, annotations: Tensor, k: int
) -> None:
    decoded = BeamSearch(3, max_length=6)(decoder, decoder.remember(annotations))
    logits, _ = decoder(annotations, F.pad(decoded.tokens, (1, -1), value=BOS))
    words, probabilities = find_alternatives(logits, decoded.tokens, k)
    expected = stepped(decoder, annotations, decoded.tokens)
    expected.scatter_(3, decoded.tokens[..., None], 0.0)
    best = expected.sort(dim=3, descending=True)
    real = decoded.tokens != PAD
    torch.testing.assert_close(probabilities[real], best.values[..., :k][real])
    assert torch.equal(words[real], best.indices[..., :k][real])


def test_a_substitute_suits_the_words_around_it(decoder: Decoder, annotations: Tensor) -> None:
    def total(caption: list[int]) -> float:
        tokens = torch.tensor([[caption]])
        each = stepped(decoder, annotations[:1], tokens).log().gather(3, tokens[..., None])
        return each.sum().item()

    memory = decoder.remember(annotations[:1])
    every = set(range(decoder.vocab_size)) - {PAD, BOS, EOS, UNK}
    best = sorted(every, key=lambda word: -total([4, word, 6]))
    after = sorted(every, key=lambda word: -total([4, best[0], 6, word, EOS]))
    [found, last] = find_substitutes(decoder, memory, [4, UNK, 6, UNK, EOS], k=3)
    assert (found, last) == (best[:3], after[:3])
