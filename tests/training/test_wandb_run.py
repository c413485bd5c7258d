"""Offline W&B runs, read with W&B's own `wandb leet inspect`, and the sweep file."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import wandb
import yaml
from wandb.sdk.launch.sweeps import utils as sweeps

from captioning.training.loggers import Board
from captioning.training.train_cli import train
from tests.training.conftest import QUICK, ended_by, interrupt_at, saved

pytestmark = pytest.mark.integration

OFTEN = ("--trainer.log_every_n_steps=1", "--save_every=0", "--compile_after=-1")
BOARD = ("--validation_table.images=2", "--log_model=true", *OFTEN)

SWEEP = Path(__file__).parents[2] / "docs" / "how-to" / "sweep.yaml"

STEP = "trainer/global_step"


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_CACHE_DIR", str(tmp_path / "cache"))
    for name in ("WANDB_DATA_DIR", "WANDB_SERVICE"):  # the service of this process, if it has one
        monkeypatch.delenv(name, raising=False)


def records(run: Path) -> list[list[dict[str, Any]]]:
    """The records of each of a run's offline parts, in the order of time."""
    parts = sorted(run.glob("wandb/offline-run-*/*.wandb"), key=lambda path: path.stat().st_mtime)
    found = []
    for path in parts:
        command = [sys.executable, "-m", "wandb", "leet", "inspect", "--json", str(path)]
        lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        found.append([json.loads(line) for line in lines.splitlines()])
    return found


def of_kind(part: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [record[kind] for record in part if record["type"] == kind]


def history(part: list[dict[str, Any]], name: str) -> list[int]:
    """The training's steps at which a metric was logged."""
    rows = [row["item"] for row in of_kind(part, "history")]
    return [int(row[STEP]) for row in rows if name in row or f"{name}._type" in row]


def models(part: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each for each in of_kind(part, "artifact") if each["type"] == "model"]


def options(config: Path, run: Path, *more: str) -> list[str]:
    return ["--config", str(config), "--trainer.default_root_dir", str(run), *QUICK, *more]


@pytest.fixture
def resumed(tiny_config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a training of 9 steps, which was interrupted in step 5 and resumed."""
    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        interrupt_at(5, patch)
        with pytest.raises(KeyboardInterrupt):
            train(options(tiny_config, run, *BOARD))
    train(options(tiny_config, run, *BOARD, "--resume"))
    return run


def test_a_resumed_training_goes_on_in_its_own_run(resumed: Path) -> None:
    parts = records(resumed)
    [first, second] = [of_kind(part, "run")[0] for part in parts]
    assert first["run_id"] == second["run_id"] == saved(resumed)["wandb_id"]
    assert second["resume"]  # `wandb sync` numbers its rows after those of the first part
    assert len(list(resumed.glob(f"wandb/offline-run-*-{first['run_id']}"))) == 2
    losses = [history(part, "train/loss") for part in parts]
    assert losses == [[0, 1, 2, 3, 4], [5, 6, 7, 8]]
    for name in ("val/CIDEr", "val/overlay/0", "val/captions"):
        assert [len(history(part, name)) for part in parts] == [1, 2]


def test_the_runs_configuration_is_that_of_the_training(resumed: Path) -> None:
    expected = yaml.safe_load((resumed / "config.yaml").read_text())
    for part in records(resumed):
        found = of_kind(part, "run")[0]["config"]["update"]
        assert {name: found[name] for name in expected} == expected


def test_the_best_checkpoint_is_an_artifact_with_aliases(resumed: Path) -> None:
    first, second = records(resumed)
    assert models(first) == []
    [model] = models(second)
    epoch = saved(resumed, "best.ckpt")["epoch"] + 1
    assert set(model["aliases"]) == {"best", "latest", f"epoch-{epoch}"}
    metadata = json.loads(model["metadata"])
    assert (metadata["monitor"], metadata["epoch"]) == ("val/BLEU-4", epoch)
    assert metadata["model"]["decoder"]["init_args"]["hidden_dim"] == 8
    [file] = model["manifest"]["contents"]
    assert file["path"] == "best.ckpt"
    assert Path(file["local_path"]).read_bytes() == (resumed / "best.ckpt").read_bytes()


def test_overlays_are_media_with_a_step_per_validation(resumed: Path) -> None:
    parts = records(resumed)
    for number in range(2):
        steps = [step for part in parts for step in history(part, f"val/overlay/{number}")]
        assert steps == [3, 6, 9]
    files = [*resumed.glob("wandb/offline-run-*/files/media/images/val/overlay/*.jpg")]
    assert len(files) == 6
    assert all(file.stat().st_size < 200_000 for file in files)


def test_all_of_a_run_lies_in_its_own_folder(resumed: Path, tmp_path: Path) -> None:
    entries = {path.name for path in (resumed / "wandb").iterdir() if not path.is_symlink()}
    assert {name for name in entries if "offline-run" not in name} <= {"steps.json"}
    assert not (tmp_path / "cache").exists() or not any((tmp_path / "cache").rglob("*.ckpt"))
    for part in records(resumed):
        for artifact in of_kind(part, "artifact"):
            for file in artifact["manifest"]["contents"]:
                assert Path(file["local_path"]).is_file()  # what `wandb sync` uploads


def test_steps_of_an_overwritten_run_are_not_those_of_the_next(tmp_path: Path) -> None:
    (tmp_path / "wandb").mkdir()
    (tmp_path / "wandb/steps.json").write_text('{"id": "first", "steps": {"train/loss": 99}}')
    board = Board(project="captioning", save_dir=tmp_path, mode="offline")
    board.resume("second")
    board.log_metrics({"train/loss": 1.0}, step=3)
    wandb.finish()
    [part] = records(tmp_path)
    assert history(part, "train/loss") == [3]


def test_an_interrupted_training_logs_steps_after_its_last_checkpoint_once(
    tiny_config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    given = options(tiny_config, run, "--trainer.log_every_n_steps=1", "--compile_after=-1")
    with monkeypatch.context() as patch:
        interrupt_at(5, patch)
        with pytest.raises(KeyboardInterrupt):
            train(given)
    assert saved(run)["global_step"] == 3
    train([*given, "--resume"])
    losses = [history(part, "train/loss") for part in records(run)]
    assert losses == [[0, 1, 2, 3, 4], [5, 6, 7, 8]]


def test_a_killed_training_goes_on_in_its_own_run_from_its_last_checkpoint(
    tiny_config: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    given = options(tiny_config, run, "--validation_table.images=1", "--compile_after=-1")
    given.append("--trainer.log_every_n_steps=1")  # the last checkpoint follows step 2
    assert ended_by(signal.SIGKILL, 5, given).returncode == -signal.SIGKILL
    train([*given, "--resume"])
    *_, second = records(run)  # W&B's process may end before it has written the first part
    [run_id] = {path.name.rpartition("-")[2] for path in run.glob("wandb/offline-run-*")}
    assert of_kind(second, "run")[0]["run_id"] == run_id
    assert history(second, "train/loss") == [3, 4, 5, 6, 7, 8]


def test_four_trainings_by_the_sweep_file(
    tiny_config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = yaml.safe_load(SWEEP.read_text())
    names = ("model.learning_rate", "model.decoder.init_args.dropout")
    assert set(sweep["parameters"]) == set(names)
    monkeypatch.chdir(tmp_path)
    rates = sweep["parameters"][names[0]]
    values = [(rates["min"], 0.0), (rates["max"], 0.0), (0.001, 0.5), (0.003, 0.5)]
    ids = []
    for number, pair in enumerate(values):
        args = {name: {"value": value} for name, value in zip(names, pair, strict=True)}
        expanded = sweeps.create_sweep_command_args({"args": args})["args"]
        command: list[str] = []
        for word in sweeps.create_sweep_command(list(sweep["command"])):
            command += expanded if word == "${args}" else [word]
        small = [*QUICK, *OFTEN, "--trainer.max_epochs=1", "--validation_table.images=1"]
        small.append("--trainer.check_val_every_n_epoch=1")
        command += ["--config", str(tiny_config), *small]
        agent = {"WANDB_RUN_ID": f"trial{number}", "WANDB_SWEEP_ID": "sweep1"}
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        subprocess.run(command, check=True, env=os.environ | agent | {"PATH": path})
        [part] = records(Path("runs/sweep", f"trial{number}"))
        [run] = of_kind(part, "run")
        ids.append((run["run_id"], run["sweep_id"]))
        model = run["config"]["update"]["model"]
        assert (model["learning_rate"], model["decoder"]["init_args"]["dropout"]) == pair
        assert history(part, sweep["metric"]["name"])
        assert models(part)
    assert ids == [(f"trial{number}", "sweep1") for number in range(4)]
