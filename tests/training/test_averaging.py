"""Averaged weights in a training."""

from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
import yaml

from captioning.captioner import load
from captioning.data.feature_cache import FeatureCache, fingerprint
from captioning.training.callbacks import ExponentialAverage
from captioning.training.loggers import ValidationTable
from captioning.training.module import CaptioningModule
from captioning.training.train_cli import train
from tests.training.conftest import QUICK, interrupt_at, saved

AVERAGE = "captioning.training.ExponentialAverage"
AVERAGED = "output.weight"


@pytest.fixture(scope="module")
def averaging(tiny_config: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The tiny training with averaged weights and a frozen encoder."""
    average = {"class_path": AVERAGE, "init_args": {"decay": 0.7}}
    delta = tmp_path_factory.mktemp("averaging") / "averaging.yaml"
    delta.write_text(yaml.safe_dump({"trainer": {"callbacks": [average]}}))
    frozen = ["--model.encoder.init_args.trainable_stages", "0"]
    return ["--config", str(tiny_config), "--config", str(delta), *frozen, *QUICK]


def run(averaging: list[str], folder: Path, *options: str) -> dict[str, Any]:
    """The last checkpoint of a training."""
    train([*averaging, "--trainer.default_root_dir", str(folder), *options])
    return saved(folder)


@pytest.fixture(scope="module")
def averaged(
    averaging: list[str], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, Any], torch.Tensor]:
    """A training's folder, its last checkpoint, and a weight as its last validation saw it."""
    folder = tmp_path_factory.mktemp("averaged")
    seen = []

    def look(self: ValidationTable, trainer: pl.Trainer, module: CaptioningModule) -> None:
        [name] = (name for name in module.state_dict() if name.endswith(AVERAGED))
        seen.append(module.state_dict()[name].clone())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ValidationTable, "on_validation_epoch_end", look)
        last = run(averaging, folder / "run", "--data.features", str(folder / "features"))
    return folder, last, seen[-1]


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


def test_what_is_not_trained_stays_the_same_to_the_last_bit(averaged: Any) -> None:
    folder, *_ = averaged
    best = load(folder / "run" / "best.ckpt")
    key = fingerprint(best.model.encoder, best.preprocessing)
    assert FeatureCache(folder / "features", key).next_file == 1


def test_a_checkpoint_holds_the_average_and_the_latest_weights(averaged: Any) -> None:
    _, last, seen = averaged
    [name] = (name for name in last["state_dict"] if name.endswith(AVERAGED))
    assert not last["state_dict"][name].equal(last["current_model_state"][name])
    assert seen.equal(last["state_dict"][name])  # validations see the average, too


@pytest.fixture
def second_stage(checkpoint: Path, tmp_path: Path) -> list[str]:
    """Self-critical training from a checkpoint, whose weights the average keeps a share of."""
    average = {"class_path": AVERAGE, "init_args": {"decay": 0.9, "keeps_start": True}}
    delta = tmp_path / "delta.yaml"
    delta.write_text(yaml.safe_dump({"trainer": {"callbacks": [average]}}))
    objective = "--model.objective=captioning.training.SelfCritical"
    return ["--config", str(delta), "--model.initial", str(checkpoint), objective]


def test_the_average_of_a_second_stage_starts_from_its_start(
    averaging: list[str], second_stage: list[str], checkpoint: Path, tmp_path: Path
) -> None:
    still = "--model.learning_rate=1e-9"
    after = run(averaging, tmp_path / "run", *second_stage, still)["state_dict"]
    start = torch.load(checkpoint, weights_only=True)["state_dict"]
    torch.testing.assert_close(after, start, atol=1e-7, rtol=0)


@pytest.mark.integration
@pytest.mark.parametrize("stage", ["first", "second"])
def test_resuming_an_averaged_stage_equals_never_stopping(
    averaging: list[str], second_stage: list[str], tmp_path: Path, stage: str
) -> None:
    options = second_stage if stage == "second" else []
    whole = run(averaging, tmp_path / "whole", *options)
    with pytest.MonkeyPatch.context() as patch:
        interrupt_at(4, patch)
        with pytest.raises(KeyboardInterrupt):
            run(averaging, tmp_path / "parts", *options)
    resumed = run(averaging, tmp_path / "parts", *options, "--resume")
    for part in ("state_dict", "current_model_state"):
        torch.testing.assert_close(resumed[part], whole[part], rtol=0, atol=0)
