"""Averaged weights in a training."""

import json
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch

from captioning.captioner import load
from captioning.data.feature_cache import FeatureCache, fingerprint
from captioning.models.encoder import measured_offset
from captioning.training.callbacks import ExponentialAverage
from captioning.training.loggers import ValidationTable
from captioning.training.module import CaptioningModule
from tests.training.conftest import Patch, Train, saved

WEIGHT = "model.decoder.output.weight"


def averaging(**options: Any) -> tuple[str, str]:
    """Options of a training with averaged weights and a frozen encoder."""
    average = {"class_path": "captioning.training.ExponentialAverage", "init_args": options}
    frozen = "--model.encoder.init_args.trainable_stages=0"
    return f"--trainer.callbacks={json.dumps([average])}", frozen


AVERAGED = averaging(decay=0.7)
SECOND_STAGE = (
    *averaging(decay=0.9, keeps_start=True),
    *("--model.objective=captioning.training.SelfCritical", "--model.initial=CHECKPOINT"),
)
"""Self-critical training from a checkpoint, whose weights the average keeps a share of."""


@pytest.mark.parametrize(
    ("keeps_start", "first"), [(False, 0.25 * 2 + 0.75 * 4), (True, 0.75 * 2 + 0.25 * 4)]
)
def test_the_average_is_by_hand(keeps_start: bool, first: float) -> None:
    average, weights = [torch.tensor([2.0])], [torch.tensor([4.0])]
    ema = ExponentialAverage(decay=0.75, keeps_start=keeps_start)
    ema._average(average, weights, torch.tensor(2))  # keeps 3/12, or 0.75
    assert average[0].item() == pytest.approx(first)
    ema._average(average, weights, torch.tensor(90))  # keeps 0.75
    assert average[0].item() == pytest.approx(0.75 * first + 0.25 * 4)


def test_a_checkpoint_holds_the_average_and_the_latest_weights(
    train_into: Train, tmp_path: Path, monkeypatch: Patch
) -> None:
    seen = []

    def look(self: ValidationTable, trainer: pl.Trainer, module: CaptioningModule) -> None:
        seen.append(module.state_dict()[WEIGHT].clone())

    monkeypatch.setattr(ValidationTable, "on_validation_epoch_end", look)
    options = (f"--data.features={tmp_path / 'features'}", "--trainer.max_epochs=1")
    folder = train_into("run", *AVERAGED, *options)
    last = saved(folder)
    assert not last["state_dict"][WEIGHT].equal(last["current_model_state"][WEIGHT])
    assert seen[-1].equal(last["state_dict"][WEIGHT])  # validations see the average, too
    best = load(folder / "best.ckpt")  # what is not trained stays the same to the last bit
    key = fingerprint(best.model.encoder, best.preprocessing)
    assert FeatureCache(tmp_path / "features", key).next_file == 1
    measured = {32: measured_offset(best.model.encoder, 32)}  # once, before the first step
    assert best.model.encoder.offsets == measured
    assert load(folder / "last.ckpt").model.encoder.offsets == measured


@pytest.mark.integration
def test_the_average_of_a_second_stage_starts_from_its_start(
    train_into: Train, checkpoint: Path
) -> None:
    options = [option.replace("CHECKPOINT", str(checkpoint)) for option in SECOND_STAGE]
    options += ["--trainer.max_epochs", "1"]
    after = saved(train_into("run", *options, "--model.learning_rate=1e-9"))["state_dict"]
    start = torch.load(checkpoint, weights_only=True)["state_dict"]
    torch.testing.assert_close(after, start, atol=1e-7, rtol=0)
