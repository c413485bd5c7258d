import csv
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from captioning.commands import main
from captioning.errors import InputError
from captioning.training.train_cli import train
from tests.training.conftest import QUICK, interrupt_at

FIRST, LAST = 2, 2  # epochs of three steps


@pytest.fixture
def phases(tiny_config: Path, tmp_path: Path) -> list[str]:
    """The tiny training by cross-entropy, then self-critical, with averaged weights."""
    then = {
        "objective": {"class_path": "captioning.training.SelfCritical"},
        "epochs": LAST,
        "learning_rate": 1e-3,
        "encoder_learning_rate": 1e-4,
    }
    average = {"class_path": "captioning.training.ExponentialAverage"}
    delta = tmp_path / "phases.yaml"
    delta.write_text(
        yaml.safe_dump(
            {
                "model": {"learning_rate": 1e-2, "encoder_learning_rate": 1e-3, "then": then},
                "trainer": {"max_epochs": FIRST + LAST, "callbacks": [average]},
                "early_stopping": {"patience": 10},
            }
        )
    )
    return ["--config", str(tiny_config), "--config", str(delta), *QUICK]


def run(phases: list[str], folder: Path, *options: str) -> dict[str, Any]:
    """The last checkpoint of a training."""
    train([*phases, "--trainer.default_root_dir", str(folder), *options])
    content: dict[str, Any] = torch.load(folder / "last.ckpt", weights_only=True)
    return content


def test_the_last_epochs_have_their_own_objective_and_learning_rates(
    phases: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run(phases, tmp_path / "run", "--trainer.log_every_n_steps", "1")
    with (tmp_path / "run/csv/metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    rewarded = {int(row["epoch"]) for row in rows if row.get("train/reward")}
    assert rewarded == {FIRST, FIRST + 1}
    rates: dict[bool, list[float]] = {False: [], True: []}
    for row in rows:
        if row.get("lr-AdamW/pg1"):
            rates[int(row["step"]) >= 3 * FIRST].append(float(row["lr-AdamW/pg1"]))
    assert max(rates[False]) == pytest.approx(1e-2, rel=0.05)
    assert max(rates[True]) == pytest.approx(1e-3, rel=0.05)
    assert capfd.readouterr().err.count(f"the last {LAST} epochs: SelfCritical") == 1


def test_the_last_epochs_start_from_the_averaged_weights_with_a_new_optimizer(
    phases: list[str], tmp_path: Path
) -> None:
    still = [f"--model.then.{rate}=1e-12" for rate in ("learning_rate", "encoder_learning_rate")]
    with pytest.MonkeyPatch.context() as patch:
        interrupt_at(3 * FIRST, patch)  # before the first step of the last epochs
        with pytest.raises(KeyboardInterrupt):
            run(phases, tmp_path / "run", *still)
    before = torch.load(tmp_path / "run/last.ckpt", weights_only=True)
    after = run(phases, tmp_path / "run", *still, "--resume")
    name = "model.decoder.output.weight"
    assert not before["state_dict"][name].equal(before["current_model_state"][name])
    torch.testing.assert_close(
        after["current_model_state"][name], before["state_dict"][name], atol=1e-8, rtol=0
    )
    moments = after["optimizer_states"][0]["state"].values()
    assert {int(state["step"]) for state in moments} == {3 * LAST}


@pytest.mark.integration
@pytest.mark.parametrize("step", [3 * FIRST - 2, 3 * FIRST, 3 * FIRST + 4])
def test_resuming_in_either_phase_equals_never_stopping(
    phases: list[str], tmp_path: Path, step: int
) -> None:
    whole = run(phases, tmp_path / "whole")
    with pytest.MonkeyPatch.context() as patch:
        interrupt_at(step, patch)
        with pytest.raises(KeyboardInterrupt):
            run(phases, tmp_path / "parts")
    resumed = run(phases, tmp_path / "parts", "--resume")
    for part in ("state_dict", "current_model_state"):
        for name, value in whole[part].items():
            assert value.equal(resumed[part][name]), name


def test_epochs_must_be_left_for_the_first_objective(
    phases: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--trainer.max_epochs", str(LAST), "--trainer.default_root_dir", str(tmp_path / "r")]
    with pytest.raises(InputError, match=r"trainer\.max_epochs: give more than the 2 epochs"):
        train([*phases, *options])
    assert main(["train", *phases, *options, "--model.then.epochs", "0"]) == 2
    assert "model.then.epochs" in capsys.readouterr().err
