import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from captioning.captioner import Captioner
from captioning.data.dataset import Batch, pad_captions
from captioning.data.records import Record
from captioning.data.vocabulary import Vocabulary
from captioning.metrics import registry
from captioning.metrics.registry import Metric
from captioning.metrics.scores import Scores
from captioning.training.module import CaptioningModule
from captioning.training.objectives import Loss, Objective
from captioning.training.train_cli import train
from tests.conftest import Trained

Train = Callable[..., Path]

Capture = pytest.CaptureFixture[str]

Patch = pytest.MonkeyPatch

QUICK = ("--validation_page.images=0", "--validation_grounding.images=0")
"""Without what shows a validation, which takes longer than the rest of a tiny training."""


def loss_of(
    objective: Objective,
    captioner: Captioner,
    annotations: torch.Tensor,
    batch: Batch,
    records: Sequence[Record] = (),
) -> Loss:
    """The loss of a batch by an objective that is prepared first."""
    objective.check(captioner.model)
    objective.prepare(records, captioner.vocabulary, captioner.preprocessing)
    return objective(captioner.network.accelerated, annotations, batch)


def learnt(
    steps: int,
    rate: float,
    objective: Objective,
    captioner: Captioner,
    annotations: torch.Tensor,
    batch: Batch,
    records: Sequence[Record] = (),
) -> list[dict[str, float]]:
    """The figures of each step in which the captioner's decoder learns a batch."""
    objective.check(captioner.model)
    objective.prepare(records, captioner.vocabulary, captioner.preprocessing)
    optimizer = torch.optim.Adam(captioner.model.decoder.parameters(), lr=rate)
    found = []
    for _ in range(steps):
        total, divisor, figures = objective(captioner.network.accelerated, annotations, batch)
        optimizer.zero_grad()
        (total / divisor).backward()
        optimizer.step()
        found.append({name: float(value) for name, value in figures.items()})
    return found


def tokens_of(photos: Sequence[Sequence[str]], vocabulary: Vocabulary) -> torch.Tensor:
    """The words of the captions of each photo."""
    return pad_captions([[torch.tensor(vocabulary.encode(text)) for text in its] for its in photos])


@pytest.fixture
def train_into(tiny_config: Path, tmp_path: Path) -> Train:
    """Trains into a folder of `tmp_path`, with further options, and returns the folder."""

    def run(name: str, *options: str) -> Path:
        folder = tmp_path / name
        place = ["--trainer.default_root_dir", str(folder)]
        train(["--config", str(tiny_config), *place, *QUICK, *options])
        return folder

    return run


@pytest.fixture
def two_epochs(trained: Trained, tmp_path: Path) -> Path:
    """The folder that `train_into` names "run", after two epochs, to go on with."""
    run = trained("two-epochs", *QUICK, "--trainer.max_epochs=2")
    return shutil.copytree(run, tmp_path / "run")


def saved(folder: Path, name: str = "last.ckpt") -> dict[str, Any]:
    """The content of a run's checkpoint."""
    content: dict[str, Any] = torch.load(folder / name, weights_only=True)
    return content


def assert_same_training(first: Path, second: Path) -> None:
    """Exactly the same parameters, buffers and optimiser, and weights that are averaged."""
    ours, theirs = saved(first), saved(second)
    assert ours["global_step"] == theirs["global_step"]
    for part in ("state_dict", "optimizer_states", "current_model_state"):
        torch.testing.assert_close(ours.get(part), theirs.get(part), rtol=0, atol=0)


def interrupt_at(number: int, patch: Patch) -> None:
    """Let a training be interrupted in its batch of this number, counted from 0."""
    whole = CaptioningModule.training_step

    def training_step(self: CaptioningModule, batch: Any, index: int) -> Any:
        if self.trainer.fit_loop.epoch_loop.total_batch_idx == number:
            raise KeyboardInterrupt
        return whole(self, batch, index)

    patch.setattr(CaptioningModule, "training_step", training_step)


def with_scores(monkeypatch: Patch, *scores: float) -> None:
    """Let the check before each training and then each validation have these BLEU-4."""
    next_scores = iter(scores)

    def validation_scores(candidates: Any, references: Any) -> Scores:
        return Scores({"BLEU-4": next(next_scores)}, {})

    others = [metric for metric in registry.METRICS if metric.name != "BLEU"]
    monkeypatch.setattr(registry, "METRICS", [Metric("BLEU", lambda: validation_scores), *others])


@pytest.fixture(autouse=True)
def without_process_group(monkeypatch: Patch) -> Iterator[None]:
    """Leaves no process group and launcher behind, for which later trainings would wait."""
    for name in ("LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "WORLD_SIZE"):
        monkeypatch.setenv(name, "")  # so that it is unset after the test, too
        monkeypatch.delenv(name)
    yield
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
