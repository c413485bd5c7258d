"""Rewarded samples: against the exact expectation, and in a training."""

import json
from itertools import product
from pathlib import Path

import pytest
import torch
from torch import Tensor

import captioning
from captioning.captioner import Captioner, export, load
from captioning.captioner.exporting import model_card
from captioning.data.dataset import Batch
from captioning.data.records import Record
from captioning.data.vocabulary import BOS, EOS, PAD, UNK, Vocabulary
from captioning.kernels import caption_cross_entropy
from captioning.metrics.cider import DocumentFrequencies, cider_scores
from captioning.models import LSTMDecoder
from captioning.models.decoder import Decoder
from captioning.search import Decoded
from captioning.training import SelfCritical
from captioning.training.self_critical import sampled_words, self_critical_loss
from tests.fixtures import DECODERS, decided
from tests.training.conftest import Train, learnt, loss_of, saved, tokens_of

A, B = 4, 5
"""The two words of the vocabulary."""

CAPTIONS = [
    [EOS, PAD],
    *([word, EOS] for word in (A, B)),
    *(list(words) for words in product((A, B), repeat=2)),  # cut before their end
]
"""All that two words can say in at most two tokens."""


@pytest.fixture(params=DECODERS)
def decoder(request: pytest.FixtureRequest) -> Decoder:
    """A tiny decoder of every kind with random parameters, that knows two words."""
    torch.manual_seed(0)
    return decided(DECODERS[request.param](5, 6))


def probabilities(decoder: Decoder, annotations: Tensor) -> Tensor:
    """Those of all captions of one image, by the definition."""
    tokens = torch.tensor(CAPTIONS)[None]
    logits, _ = decoder(annotations, torch.cat([torch.full((1, 7, 1), BOS), tokens], 2)[..., :-1])
    possible = logits[..., [EOS, A, B]].log_softmax(-1)
    places = torch.full((6,), -1).index_copy(0, torch.tensor([EOS, A, B]), torch.arange(3))
    found = possible.gather(3, places[tokens].clamp(min=0)[..., None]).squeeze(3)
    return found.masked_fill(tokens == PAD, 0.0).sum(2).exp()[0]


def test_the_expected_gradient_is_that_of_the_expected_reward(decoder: Decoder) -> None:
    annotations = torch.randn(1, 3, 5, dtype=torch.double)
    rewards = torch.tensor([0.3, 2.0, -1.0, 0.0, 0.7, 4.0, 1.0]).double()
    parameters = list(decoder.parameters())
    chances = probabilities(decoder, annotations)
    assert chances.sum().item() == pytest.approx(1)
    exact = torch.autograd.grad(-(chances * rewards).sum(), parameters, materialize_grads=True)

    expected = [torch.zeros_like(parameter) for parameter in parameters]
    for i, j in product(range(len(CAPTIONS)), repeat=2):  # all pairs of samples
        samples = torch.tensor([[CAPTIONS[i], CAPTIONS[j]]])
        memory = decoder.remember(annotations)
        loss = self_critical_loss(decoder, memory, samples, rewards[None, [i, j]]) / 2
        found = torch.autograd.grad(loss, parameters, materialize_grads=True)
        chance = (chances[i] * chances[j]).item()
        expected = [sum_ + chance * part for sum_, part in zip(expected, found, strict=True)]
    for wanted, found_ in zip(exact, expected, strict=True):
        torch.testing.assert_close(found_, wanted)


RECORDS = [
    Record(Path("1.jpg"), 1, ("A red circle.", "a circle")),
    Record(Path("2.jpg"), 2, ("a square",)),
    Record(Path("3.jpg"), 3, ("a red square", "red square")),
]


def seen(
    captioner: Captioner, *records: Record, tokens: Tensor | None = None
) -> tuple[Tensor, Batch]:
    """Annotation vectors of these photos, and their batch."""
    found = torch.randn(len(records), 4, captioner.model.encoder.annotation_dim)
    none = torch.empty(len(records), 0, 0, dtype=torch.long)
    return found, Batch(torch.empty(0), none if tokens is None else tokens, list(records))


def test_rewards_are_cider_with_ends_as_words(captioner: Captioner) -> None:
    written = [
        [["a", "red", "circle", "<eos>"], ["a", "circle", "<eos>"]],
        [["a", "square", "<eos>"]],
        [["a", "red", "square", "<eos>"], ["red", "square", "<eos>"]],
    ]
    objective = SelfCritical(samples=3, max_length=4)
    annotations, batch = seen(captioner, RECORDS[2], RECORDS[0])
    torch.manual_seed(5)
    loss = loss_of(objective, captioner, annotations, batch, RECORDS)

    torch.manual_seed(5)
    with torch.no_grad():
        memory = captioner.network.accelerated.remember(annotations)
        decoded = objective.sampling(captioner.network.accelerated.decoder, memory)
    samples = [
        [*captioner.vocabulary.decode(row), *(["<eos>"] if EOS in row else [])]
        for row in decoded.tokens.flatten(0, 1).tolist()
    ]
    references = [written[2]] * 3 + [written[0]] * 3
    rewards = cider_scores(samples, references, DocumentFrequencies.of(written)).images["CIDEr"]
    assert rewards.max() > 0
    assert float(loss.metrics["reward"]) == pytest.approx(rewards.mean(), rel=1e-5)
    assert loss.divisor == 6


def test_rewards_are_not_rounded_under_autocast(captioner: Captioner) -> None:
    annotations, batch = seen(captioner, *RECORDS[:2])
    with torch.autocast("cpu", torch.bfloat16):
        objective = SelfCritical(samples=4, max_length=4)
        loss = loss_of(objective, captioner, annotations.bfloat16(), batch, RECORDS)
    reward = loss.metrics["reward"]
    assert isinstance(reward, Tensor)
    assert loss.total.dtype == reward.dtype == torch.float32
    assert reward.bfloat16() != reward


def test_the_likelihood_of_references_is_added_per_sample(captioner: Captioner) -> None:
    records = [Record(Path("1.jpg"), 1, ("a red circle",)), Record(Path("2.jpg"), 2, ("a",))]
    tokens = tokens_of([record.captions for record in records], captioner.vocabulary)
    annotations, batch = seen(captioner, *records, tokens=tokens)
    totals = []
    for likelihood in (0.0, 0.5):
        torch.manual_seed(0)
        objective = SelfCritical(samples=3, max_length=4, likelihood=likelihood)
        totals.append(loss_of(objective, captioner, annotations, batch, records).total)
    memory = captioner.network.accelerated.remember(annotations)
    of_words, _ = caption_cross_entropy(
        captioner.network.accelerated.decoder.eval(), memory, tokens
    )
    torch.testing.assert_close(totals[1] - totals[0], 0.5 * 6 / 2 * of_words)


def test_dropout_rests_in_a_step_and_is_back_afterwards(captioner: Captioner) -> None:
    captioner.model.decoder.train()
    captioner.model.decoder.dropout.p = 0.9
    annotations, batch = seen(captioner, RECORDS[0])
    losses = []
    for _ in range(2):
        torch.manual_seed(0)
        objective = SelfCritical(samples=2, max_length=4)
        losses.append(loss_of(objective, captioner, annotations, batch, RECORDS).total.item())
    assert losses[0] == losses[1]
    assert captioner.model.decoder.training


@pytest.mark.integration
def test_steps_raise_the_reward_of_samples(captioner: Captioner) -> None:
    captions = enumerate(["red circle", "square a", "a red"])
    records = [Record(Path(f"{i}.jpg"), i, (caption,)) for i, caption in captions]
    torch.manual_seed(0)
    width = captioner.model.encoder.annotation_dim
    captioner.model.decoder = LSTMDecoder(width, len(captioner.vocabulary), 16, 16, 16)
    objective = SelfCritical(samples=8, max_length=5)
    annotations, batch = seen(captioner, *records)
    figures = learnt(60, 0.01, objective, captioner, annotations, batch, records)
    rewards = [each["reward"] for each in figures]
    assert sum(rewards[-10:]) > 2 * sum(rewards[:10])


def test_one_delta_goes_on_from_a_checkpoint(
    train_into: Train, checkpoint: Path, shapes_data: Path, tmp_path: Path
) -> None:
    options = ("--config", "self_critical", "--model.initial", str(checkpoint))
    options += ("--trainer.max_epochs=1", "--trainer.log_every_n_steps=1")
    options += ("--trainer.default_root_dir", str(tmp_path / "run"))  # not that of the delta
    folder = train_into("run", *options, "--model.learning_rate=1e-9")
    start, end = saved(checkpoint.parent, "best.ckpt"), saved(folder, "best.ckpt")
    decoder = [name for name in start["state_dict"] if ".decoder." in name]
    assert decoder
    for name in decoder:  # after steps so small, what a training starts from is still to be seen
        ours, theirs = end["state_dict"][name], start["state_dict"][name]
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=0)
    header = (folder / "csv" / "metrics.csv").read_text().splitlines()[0]
    assert "train/reward" in header.split(",")
    signature = "STANDARD_wInit+Cider-D[n4,s6.0]+0.2*BLEU[n4]+average[nspi5]+1.0.0"
    assert end["captioner"]["reward"] == signature
    assert "reward" not in start["captioner"]
    exported, results = tmp_path / "model.safetensors", tmp_path / "evaluation"
    export(folder / "best.ckpt", exported)  # the scores of a model carry how it was trained
    captioning.evaluate(model=str(exported), data=shapes_data, out=results)
    assert json.loads((results / "report.json").read_text())["reward"] == signature
    assert signature in model_card(load(exported), results)
    assert SelfCritical(3).signature == "STANDARD_wInit+Cider-D[n4,s6.0]+average[nspi3]+1.0.0"


def test_samples_are_scored_by_the_words_of_the_scores(captioner: Captioner) -> None:
    captioner.vocabulary = Vocabulary(["doesn't", "x-ray"], "tweet")
    tokens = torch.tensor([[[5, 4, EOS], [4, 5, UNK]]])
    decoded = Decoded(tokens, torch.zeros(1, 2, 3), torch.zeros(1, 2, 3, 1), torch.zeros(1, 2))
    assert sampled_words(decoded, captioner.vocabulary) == [
        [("x-ray", "does", "n't", "<eos>"), ("does", "n't", "x-ray", "<unk>")]
    ]
