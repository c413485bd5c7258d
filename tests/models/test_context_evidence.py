import pytest
import torch
from torch import Tensor, nn

from captioning.captioner.ensemble_decoder import EnsembleDecoder
from captioning.data.vocabulary import PAD
from captioning.errors import InputError
from captioning.models import LSTMDecoder, TransformerDecoder
from captioning.models.decoder import Memory

TOKENS = torch.tensor([[[1, 4, 5, 6, 2], [1, 7, 7, 2, PAD]]] * 3)  # (B, N, S) = (3, 2, 5)


def decoder(seed: int = 0, **options: bool) -> LSTMDecoder:
    torch.manual_seed(seed)
    made = LSTMDecoder(5, 8, 6, 7, 4, **options)
    for parameter in made.parameters():
        nn.init.normal_(parameter, std=0.7)
    return made.double().eval()


def odds() -> Tensor:
    """The probabilities of what could stand in the place of each word."""
    return torch.randn(3, 2, 4, 8, generator=torch.Generator().manual_seed(1)).double().softmax(-1)


@pytest.mark.parametrize("scalar_gate", [False, True])
@pytest.mark.parametrize("deep_output", [False, True])
@pytest.mark.parametrize("query_with_word", [False, True])
def test_it_is_the_difference_that_a_little_more_of_a_region_makes(
    annotations: Tensor, scalar_gate: bool, deep_output: bool, query_with_word: bool
) -> None:
    lstm = decoder(
        scalar_gate=scalar_gate, deep_output=deep_output, query_with_word=query_with_word
    )
    memory = lstm.remember(annotations)
    contexts = contexts_of(lstm, memory)
    found = lstm.context_evidence(memory, TOKENS, odds(), earlier=0.3)
    assert found.shape == (3, 2, 4, 6)
    assert not found.requires_grad
    for region in (0, 5):
        more = 1e-5 * memory.annotations[:, None, region]
        for t in range(4):
            expected = torch.zeros(3, 2).double()
            for at in range(t + 1):
                above, below = (
                    score(lstm, memory, [*contexts[:at], moved, *contexts[at + 1 :]], t)
                    for moved in (contexts[at] + more, contexts[at] - more)
                )
                expected += (1.0 if at == t else 0.3) * (above - below) / 2e-5
            torch.testing.assert_close(found[:, :, t, region], expected, rtol=1e-5, atol=1e-8)


def contexts_of(lstm: LSTMDecoder, memory: Memory) -> list[Tensor]:
    """What attention gives for each word in turn."""
    state = lstm.start(memory, 2)
    contexts = []
    for t in range(4):
        context, _ = lstm.attend(lstm.embedding(TOKENS[..., t]), state, memory)
        contexts.append(context)
        state = lstm.step(TOKENS[..., t], state, memory).state
    return contexts


def score(lstm: LSTMDecoder, memory: Memory, contexts: list[Tensor], t: int) -> Tensor:
    """A word's logit, minus the mean of what could stand in its place, by given contexts."""
    state = lstm.start(memory, 2)
    for at in range(t + 1):
        logits, state = lstm.write(lstm.embedding(TOKENS[..., at]), contexts[at], state)
    of_word = logits.gather(-1, TOKENS[..., t + 1, None])[..., 0]
    return of_word - (odds()[:, :, t] * logits).sum(-1)


def test_where_the_cell_reads_no_context_it_is_the_gate_times_evidence(annotations: Tensor) -> None:
    lstm = decoder()
    nn.init.zeros_(lstm.context_gates.weight)
    memory = lstm.remember(annotations)
    state = lstm.start(memory, 2)
    gate = lstm.beta(state["hidden"]).sigmoid()
    found = lstm.context_evidence(memory, TOKENS, odds())[:, :, 0]
    evidence = lstm.evidence(memory, TOKENS[..., 1:], odds())[:, :, 0]
    torch.testing.assert_close(found, gate * evidence)


def test_unlike_evidence_it_depends_on_the_words_before(annotations: Tensor) -> None:
    lstm = decoder()
    memory = lstm.remember(annotations)
    other = TOKENS.clone()
    other[..., 1] = 3
    found, of_other = (
        lstm.context_evidence(memory, tokens, odds(), earlier=0.0) for tokens in (TOKENS, other)
    )
    assert not torch.allclose(found[:, :, 2], of_other[:, :, 2])


def test_an_ensemble_has_the_mean_of_its_members(annotations: Tensor) -> None:
    members = [decoder(0), decoder(1)]
    ensemble = EnsembleDecoder(members, [slice(0, 6)] * 2)
    found = ensemble.context_evidence(ensemble.remember(annotations), TOKENS, odds())
    first, second = (
        member.context_evidence(member.remember(annotations), TOKENS, odds()) for member in members
    )
    torch.testing.assert_close(found, (first + second) / 2)


def test_members_with_different_grids_have_none(annotations: Tensor) -> None:
    ensemble = EnsembleDecoder([decoder(0), decoder(1)], [slice(0, 6)] * 2, [(2, 3), (3, 2)])
    with pytest.raises(InputError, match="members with different grids share no region"):
        ensemble.context_evidence(ensemble.remember(annotations), TOKENS, odds())


def test_a_transformer_has_none(annotations: Tensor) -> None:
    transformer = TransformerDecoder(5, 8, width=4, heads=2, layers=1).double().eval()
    with pytest.raises(InputError, match="scores no word by a region alone"):
        transformer.context_evidence(transformer.remember(annotations), TOKENS, odds())
