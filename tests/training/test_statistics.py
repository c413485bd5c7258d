"""Batch norm of a pretrained encoder keeps its statistics in every training."""

from itertools import product
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from captioning.captioner import load
from captioning.models import CNNEncoder
from captioning.shapes import write_shapes
from captioning.training.finetune import Plan, finetune
from tests.training.conftest import Patch, Train, saved

ENCODER = "--model.encoder.init_args"


def buffers_of(encoder: nn.Module) -> dict[str, Tensor]:
    return {f"model.encoder.{name}": value for name, value in encoder.named_buffers()}


TRAININGS = [*product(("weights", "initial"), ("0", "1", "-1"), ("CrossEntropy", "SelfCritical"))]
"""Where the statistics come from, the trained stages, and the objective."""

QUICK = {("weights", "1", "CrossEntropy"), ("initial", "-1", "CrossEntropy")}
"""Those that run every time."""


@pytest.mark.parametrize(
    ("start", "stages", "objective"),
    [
        pytest.param(*training, marks=() if training in QUICK else pytest.mark.integration)
        for training in TRAININGS
    ],
)
def test_no_training_changes_statistics(
    train_into: Train, checkpoint: Path, start: str, stages: str, objective: str
) -> None:
    options = [f"--model.objective={objective}", f"{ENCODER}.trainable_stages={stages}"]
    if start == "weights":
        before = buffers_of(CNNEncoder("small"))
        options.append(f"{ENCODER}.weights=DEFAULT")
    else:
        before = buffers_of(load(checkpoint).model.encoder)
        options.append(f"--model.initial={checkpoint}")
    after = saved(train_into("run", *options, "--trainer.max_steps=2"))["state_dict"]
    assert any("running_mean" in name for name in before)
    torch.testing.assert_close({name: after[name] for name in before}, before, rtol=0, atol=0)


@pytest.mark.integration
def test_finetuning_stages_changes_no_statistics(tmp_path: Path, monkeypatch: Patch) -> None:
    plan = Plan(9, epochs=1, batch_size=2, lesson="this")
    monkeypatch.setattr(Plan, "of", lambda *_, **__: plan)
    write_shapes(tmp_path / "scenes", train=4, val=2, test=1, progress=False)
    finetune(tmp_path / "scenes", "shapes", tmp_path / "out", keep_features=True)
    before = buffers_of(load("shapes").model.encoder)
    after = saved(tmp_path / "out")["state_dict"]
    torch.testing.assert_close({name: after[name] for name in before}, before, rtol=0, atol=0)
