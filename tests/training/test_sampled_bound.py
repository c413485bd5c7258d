"""The sampled bound against the bound itself, by enumeration of all regions of all words."""

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from captioning.captioner import Captioner
from captioning.data.dataset import Batch
from captioning.data.vocabulary import BOS, EOS, PAD
from captioning.models import HardAttention, LSTMDecoder
from captioning.models.losses import cross_entropy
from captioning.training import SampledBound
from tests.training.conftest import Patch, saved
from tests.training.test_processes import TWO, column, run

REGIONS, WORDS = 3, 3
PATHS = list(itertools.product(range(REGIONS), repeat=WORDS))
"""All regions that the words of a caption may look at."""

TOKENS = torch.tensor([[[BOS, 4, 5, EOS]]])
BATCH = Batch(torch.empty(0), TOKENS, [])


class Prescribed(HardAttention):
    """Looks where it is told instead of drawing."""

    path: Iterator[int]

    def draw(self, weights: Tensor) -> Tensor:
        return torch.full(weights.shape[:2], next(self.path))


def captioner_of(captioner: Captioner, kind: type[HardAttention]) -> Captioner:
    """The captioner with a tiny decoder in double precision, for annotation vectors of width 5."""
    torch.manual_seed(1)
    decoder = LSTMDecoder(5, 8, 4, 4, 3, attention=kind, dropout=0.0)
    for parameter in decoder.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    captioner.model.decoder = decoder.double()
    return captioner


@pytest.fixture
def hard(captioner: Captioner) -> Captioner:
    return captioner_of(captioner, HardAttention)


@pytest.fixture
def seen() -> Tensor:
    """One image of three regions."""
    generator = torch.Generator().manual_seed(2)
    return torch.randn(1, REGIONS, 5, dtype=torch.double, generator=generator)


def objective(**options: float) -> SampledBound:
    return SampledBound(**({"expected": 0.0, "entropy": 0.0} | options)).double()


def along(
    path: tuple[int, ...], captioner: Captioner, seen: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Both log-probabilities and the entropy of one path: log p(y | s, a), log p(s | a), H."""
    decoder = captioner.model.decoder
    memory = decoder.remember(seen)
    state = decoder.start(memory, 1) | {"draws": torch.ones(1, 1, dtype=torch.bool)}
    likelihood, chosen, entropy = torch.zeros(3, dtype=torch.double).unbind()
    decoder.attention.path = iter(path)
    for word, following, region in zip(TOKENS[0, 0], TOKENS[0, 0, 1:], path, strict=False):
        step = decoder.step(word.view(1, 1), state, memory)
        state, weights = step.state, step.weights[0, 0]
        likelihood = likelihood + step.logits[0, 0].log_softmax(-1)[following]
        chosen = chosen + weights[region].log()
        entropy = entropy - (weights * weights.log()).sum()
    return likelihood, chosen, entropy


def gradient(of: Tensor, captioner: Captioner) -> Tensor:
    parameters = list(captioner.model.decoder.parameters())
    parts = torch.autograd.grad(of, parameters, allow_unused=True, materialize_grads=True)
    return torch.cat([part.flatten() for part in parts])


@pytest.mark.parametrize(("baseline", "entropy"), [(0.0, 0.0), (-7.0, 0.3)])
def test_the_expected_gradient_is_that_of_the_bound(
    captioner: Captioner, seen: Tensor, baseline: float, entropy: float
) -> None:
    captioner_of(captioner, Prescribed)
    learnt = objective(entropy=entropy)
    exact, expected, total = torch.zeros(()), torch.zeros(()), 0.0
    for path in PATHS:
        learnt.baseline.fill_(baseline)  # stays
        likelihood, chosen, entropies = along(path, captioner, seen)
        # Of the entropies, eq. 12 has only the gradient along the path.
        bound = chosen.exp() * likelihood + entropy * chosen.exp().detach() * entropies
        exact = exact - gradient(bound, captioner)
        captioner.model.decoder.attention.path = iter(path)
        loss = learnt(captioner.network.accelerated, seen, BATCH).total
        expected = expected + chosen.exp().detach() * gradient(loss, captioner)
        total += chosen.exp().item()
    assert total == pytest.approx(1.0)
    torch.testing.assert_close(expected, exact, rtol=1e-10, atol=1e-10)


def test_with_expected_contexts_alone_it_is_soft_attention(hard: Captioner, seen: Tensor) -> None:
    logits, _ = hard.model(seen, TOKENS[..., :-1])
    soft = cross_entropy(logits, TOKENS[..., 1:])
    learnt = objective(expected=1.0)
    total = learnt(hard.network.accelerated, seen, BATCH).total
    torch.testing.assert_close(total, soft)
    torch.testing.assert_close(gradient(total, hard), gradient(soft, hard))
    assert learnt.baseline == 0  # it is of captions with drawn regions


def test_the_baseline_is_a_moving_average_of_likelihoods(hard: Captioner, seen: Tensor) -> None:
    tokens = torch.cat([TOKENS, torch.tensor([[[BOS, 6, EOS, PAD]]]), torch.full_like(TOKENS, PAD)])
    batch = Batch(torch.empty(0), tokens, [])
    learnt = objective()
    expected = 0.0
    for _ in range(3):
        total = learnt(hard.network.accelerated, seen.expand(3, -1, -1), batch).total.item()
        expected = 0.9 * expected + 0.1 * (-total / 2)  # an image without a caption counts nothing
        assert learnt.baseline.item() == pytest.approx(expected)


def test_padding_neither_counts_nor_spoils_the_gradient(hard: Captioner, seen: Tensor) -> None:
    padded = torch.cat([TOKENS, torch.full((1, 1, 2), PAD)], dim=2)
    results = []
    for tokens in (TOKENS, padded):
        torch.manual_seed(0)
        loss = objective(entropy=0.3)(
            hard.network.accelerated, seen, Batch(torch.empty(0), tokens, [])
        )
        results.append((loss.total, gradient(loss.total, hard)))
    torch.testing.assert_close(results[1], results[0])


def test_a_region_without_weight_spoils_no_gradient(hard: Captioner, seen: Tensor) -> None:
    hard.model.decoder.attention.energy.weight.data *= 1e4
    loss = objective(entropy=0.3)(hard.network.accelerated, seen, BATCH)
    assert gradient(loss.total, hard).isfinite().all()


SAMPLED_BOUND = (
    *("--model.decoder.init_args.attention", "captioning.models.HardAttention"),
    *("--model.objective", "captioning.training.SampledBound"),
)


FIRMEST = """
from captioning.models import HardAttention


class Firmest(HardAttention):
    '''Looks where its weight is largest, so that nothing depends on chance.'''

    def draw(self, weights):
        return weights.argmax(dim=2)
"""


@pytest.mark.integration
def test_two_processes_learn_hard_attention_as_one(
    tiny_config: Path, tmp_path: Path, monkeypatch: Patch
) -> None:
    (tmp_path / "firmest.py").write_text(FIRMEST)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    hard = ["--import", "firmest", "--model.decoder.init_args.attention", "firmest.Firmest"]
    hard += [*SAMPLED_BOUND[2:], "--model.objective.init_args.expected", "0"]
    one, two = tmp_path / "one", tmp_path / "two"
    run(["-m", "captioning"], tiny_config, one, *hard, "--data.batch_size", "2")
    run(["-m", "captioning"], tiny_config, two, *hard, *TWO)
    for name in ("train/loss", "train/baseline", "train/entropy"):
        expected = column(one, name)
        assert len(expected) == 6
        assert column(two, name) == pytest.approx(expected, rel=1e-4), name
    alone, together = (saved(folder)["state_dict"] for folder in (one, two))
    assert together["objective.baseline"] < 0
    torch.testing.assert_close(alone, together, rtol=1e-4, atol=1e-5)
