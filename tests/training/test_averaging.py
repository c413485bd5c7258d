"""Averaged weights in a training."""

import csv
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
import yaml

from captioning.captioner import load
from captioning.cli import main
from captioning.data.feature_cache import FeatureCache
from captioning.training.callbacks import ExponentialAverage
from captioning.training.loggers import ValidationTable
from captioning.training.module import CaptioningModule
from captioning.training.train_cli import train


@pytest.fixture(autouse=True)
def without_boards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "disabled")


@pytest.fixture
def averaging(tiny_config: Path, tmp_path: Path) -> list[str]:
    """The tiny training with its weights averaged."""
    average = {
        "class_path": "captioning.training.ExponentialAverage",
        "init_args": {"decay": 0.7},
    }
    delta = tmp_path / "averaging.yaml"
    delta.write_text(yaml.safe_dump({"trainer": {"callbacks": [average]}}))
    return ["--config", str(tiny_config), "--config", str(delta)]


def run(averaging: list[str], folder: Path, *options: str) -> dict[str, Any]:
    """The last checkpoint of a training."""
    train([*averaging, "--trainer.default_root_dir", str(folder), *options])
    content: dict[str, Any] = torch.load(folder / "last.ckpt", weights_only=True)
    return content


def test_the_average_is_by_hand() -> None:
    average, weights = [torch.tensor([2.0])], [torch.tensor([4.0])]
    ema = ExponentialAverage(decay=0.75)
    ema._average(average, weights, torch.tensor(2))  # keeps 3/12
    assert average[0].item() == pytest.approx(0.25 * 2 + 0.75 * 4)
    ema._average(average, weights, torch.tensor(90))  # keeps 0.75
    assert average[0].item() == pytest.approx(0.75 * 3.5 + 0.25 * 4)


def test_an_average_that_keeps_the_start_is_by_hand() -> None:
    average, weights = [torch.tensor([2.0])], [torch.tensor([4.0])]
    ema = ExponentialAverage(decay=0.75, keeps_start=True)
    ema._average(average, weights, torch.tensor(1))
    ema._average(average, weights, torch.tensor(2))
    assert average[0].item() == pytest.approx(0.75**2 * 2 + (1 - 0.75**2) * 4)


def test_what_is_not_trained_stays_the_same_to_the_last_bit(
    averaging: list[str], tmp_path: Path
) -> None:
    frozen = ["--model.encoder.init_args.trainable_stages", "0"]
    features = tmp_path / "features"
    run([*averaging, *frozen, "--data.features", str(features)], tmp_path / "run")
    best = load(tmp_path / "run" / "best.ckpt")
    FeatureCache(features).check(best.encoder, best.preprocessing, [])


def test_a_checkpoint_holds_the_averaged_weights_and_those_to_go_on_from(
    averaging: list[str], tmp_path: Path
) -> None:
    saved = run(averaging, tmp_path / "run")
    name = "captioner.decoder.hidden_gates.weight"
    assert not saved["state_dict"][name].equal(saved["current_model_state"][name])
    assert "optimizer_states" in saved


def test_the_scores_of_a_validation_are_those_of_the_averaged_weights(
    averaging: list[str], shapes_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(averaging, tmp_path / "run")
    best = torch.load(tmp_path / "run" / "best.ckpt", weights_only=True)["epoch"]
    with (tmp_path / "run" / "csv" / "metrics.csv").open() as file:
        told = {int(row["epoch"]): row for row in csv.DictReader(file) if row["val/BLEU-2"]}
    model = str(tmp_path / "run" / "best.ckpt")
    assert main(["evaluate", "--model", model, "--data", str(shapes_data), "--split", "val"]) == 0
    (shown,) = (line for line in capsys.readouterr().out.splitlines() if "BLEU-2" in line)
    assert float(shown.split()[1]) == pytest.approx(float(told[best]["val/BLEU-2"]), abs=1e-4)


def test_resuming_an_averaged_training_equals_never_stopping(
    averaging: list[str], tmp_path: Path
) -> None:
    whole = run(averaging, tmp_path / "whole")
    step = CaptioningModule.training_step

    def interrupted(self: CaptioningModule, batch: Any, index: int) -> Any:
        if self.global_step == 4:
            raise KeyboardInterrupt
        return step(self, batch, index)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CaptioningModule, "training_step", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(averaging, tmp_path / "parts")
    resumed = run(averaging, tmp_path / "parts", "--resume")
    for part in ("state_dict", "current_model_state"):
        torch.testing.assert_close(resumed[part], whole[part], rtol=0, atol=0)


def test_pictures_of_a_validation_are_of_the_averaged_weights(
    averaging: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def look(self: ValidationTable, trainer: pl.Trainer, module: CaptioningModule) -> None:
        seen.append(module.captioner.decoder.state_dict()["hidden_gates.weight"].clone())

    monkeypatch.setattr(ValidationTable, "on_validation_epoch_end", look)
    saved = run(averaging, tmp_path / "run")
    assert seen[-1].equal(saved["state_dict"]["captioner.decoder.hidden_gates.weight"])
