import pytest
import torch
from jaxtyping import Int
from torch import Tensor

from captioning.data.vocabulary import BOS, EOS, PAD
from captioning.maps import Captioned, word_maps
from captioning.maps.captioned import neighbourhood_mean
from captioning.maps.evidence_map import evidence
from captioning.maps.standout_map import (
    BEND,
    EARLIER,
    EFFECT,
    EFFECT_POWER,
    FLATTENING,
    LOG_ATTENTION,
    PAIRS,
    POWER,
    STRENGTH,
    THRESHOLD,
    context_evidence,
    log_softplus,
    random_halves,
    sampled_effects,
)
from captioning.models import Adapter, Decoder, LSTMDecoder, Model
from captioning.models.attention import Attended
from captioning.models.decoder import Memory, State, Step
from captioning.search.search import NEVER
from tests.maps.conftest import TOKENS, Patches, captioned


def read_with(given: Captioned, contexts: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """Logits (B, N, T, V) with given contexts in place of attention's; and all contexts."""
    decoder = given.model.decoder
    assert isinstance(decoder, LSTMDecoder)
    used: list[Tensor] = []

    def replaced(_: object, __: object, attended: Attended) -> Attended:
        context = contexts[len(used)] if contexts else attended.context
        used.append(context)
        return attended._replace(context=context)

    hook = decoder.attention.register_forward_hook(replaced)
    logits, _ = given.model(given.annotations, given.tokens[..., :-1])
    hook.remove()
    return logits, used


@pytest.mark.parametrize("kind", ["lstm", "multi-head"])
@torch.no_grad()
def test_context_evidence_is_what_more_of_a_region_in_the_contexts_adds(kind: str) -> None:
    given = captioned(kind)
    words = given.tokens[..., 1:, None]
    logits, contexts = read_with(given, [])
    odds = logits.softmax(dim=-1) ** FLATTENING
    odds[..., list(NEVER)] = 0.0
    odds.scatter_(-1, words, 0.0)
    odds /= odds.sum(dim=-1, keepdim=True)
    found, weights = context_evidence(given)
    torch.testing.assert_close(weights.unflatten(3, (4, 4)), word_maps("attention", given))
    vectors = given.model.remember(given.annotations).annotations
    for region in (0, 9):
        expected = torch.zeros(2, 2, 4).double()
        for at in range(4):
            above, below = (
                read_with(given, [*contexts[:at], moved, *contexts[at + 1 :]])[0]
                for sign in (1e-5, -1e-5)
                for moved in [contexts[at] + sign * vectors[:, None, region]]
            )
            scores = [of.gather(-1, words)[..., 0] - (odds * of).sum(-1) for of in (above, below)]
            slope = (scores[0] - scores[1]) / 2e-5
            expected[..., at] += slope[..., at]
            expected[..., at + 1 :] += EARLIER * slope[..., at + 1 :]
        torch.testing.assert_close(found[..., region], expected, rtol=1e-5, atol=1e-8)


class Counting(Decoder):
    """Scores word 4 by the sum of what is visible, and all other words zero."""

    def start(self, memory: Memory, n: int) -> State:
        return {}

    def step(self, tokens: Int[Tensor, "B N"], state: State, memory: Memory) -> Step:
        visible = memory.annotations[..., 0]
        visible = visible if memory.mask is None else visible * memory.mask
        logits = torch.zeros(*tokens.shape, self.vocab_size).double()
        logits[..., 4] = visible.sum(dim=1)[:, None]
        uniform = torch.full((*tokens.shape, visible.shape[1]), 1 / visible.shape[1]).double()
        return Step(logits, uniform, state)


def test_the_sampled_effect_of_a_region_is_that_of_seeing_it() -> None:
    annotations = torch.zeros(1, 25, 5).double()
    annotations[0, 7, 0] = 2.0  # word 4 has a logit of 2 if region 7 is visible, else 0
    model = Model(Patches(), Adapter(5), Counting(5, 8)).eval()
    images = torch.zeros(1, 3, 40, 40, dtype=torch.uint8)
    tokens = torch.tensor([[[BOS, 4, EOS, PAD]]])
    found = sampled_effects(Captioned(model, images, annotations, tokens))[0, 0]
    others = 8 - 3 - 1  # three of eight words are never generated
    likely = torch.tensor(2.0).double().exp()
    of_seeing = 1 - (1 / (1 + others) / (likely / (likely + others))) ** EFFECT_POWER
    signs = random_halves((5, 5)) * 2.0 - 1
    agreement = (signs[:, 7:8] * signs).double().mean(dim=0)
    torch.testing.assert_close(found[0], of_seeing * agreement)
    assert found[0].argmax() == 7
    torch.testing.assert_close(found[2], torch.zeros(25).double(), atol=1e-12, rtol=0)  # PAD


@pytest.mark.parametrize(
    ("grid", "pairs"), {(1, 1): 0, (1, 2): 1, (3, 3): 8, (5, 5): 15, (14, 14): PAIRS}.items()
)
def test_each_half_is_followed_by_its_complement(grid: tuple[int, int], pairs: int) -> None:
    halves = random_halves(grid)
    assert halves.shape == (2 * pairs, grid[0] * grid[1])
    assert torch.equal(halves[::2], ~halves[1::2])
    assert (halves[::2].sum(dim=1) == grid[0] * grid[1] // 2).all()


def standardised(values: Tensor) -> Tensor:
    return (values - values.mean(3, keepdim=True)) / values.std(3, False, keepdim=True)


def test_a_region_stands_out_by_choice_and_counts_by_strength() -> None:
    given = captioned()
    memory = given.model.remember(given.annotations)
    of_words = evidence(given.model.decoder, memory, TOKENS[..., 1:])
    of_contexts, weights = context_evidence(given)
    attended = standardised(weights.log())
    is_word = TOKENS[..., 1:] != PAD
    choice = standardised(
        standardised(of_contexts)
        + EFFECT * standardised(sampled_effects(given))
        + LOG_ATTENTION * attended
    )
    strength = standardised(standardised(neighbourhood_mean(of_words, (4, 4))) + attended)
    excess = torch.log1p((BEND * (choice - THRESHOLD)).exp()) ** POWER
    expected = excess * (STRENGTH * strength).exp()
    expected = expected / expected.sum(3, keepdim=True)
    found = word_maps("standout", given).flatten(3)
    torch.testing.assert_close(found[is_word], expected[is_word], atol=1e-6, rtol=1e-5)


def test_a_single_region_has_all_of_the_map() -> None:
    found = word_maps("standout", captioned(pixels=8))
    torch.testing.assert_close(found, torch.ones(2, 2, 4, 1, 1).double())


def test_the_logarithm_of_softplus_does_not_underflow() -> None:
    values = torch.linspace(-600, 100, 4001).view(1, 1, 1, -1)
    expected = torch.nn.functional.softplus(values.double()).log().float()
    torch.testing.assert_close(log_softplus(values), expected)
    assert log_softplus(torch.full((1, 1, 1, 1), -900.0)) == -900
