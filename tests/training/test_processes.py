"""Several processes train as one does with all their images."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.training.conftest import saved

pytestmark = pytest.mark.integration

OPTIONS = [
    *("--data.captions_per_image", "3"),
    *("--model.encoder.init_args.trainable_stages", "0"),  # batch norm differs between processes
    *("--model.decoder.init_args.dropout", "0"),  # and so does dropout
    *("--trainer.gradient_clip_val", "1.0"),
    *("--trainer.log_every_n_steps", "1"),
    *("--trainer.max_epochs", "2"),
    *("--trainer.precision", "32-true"),
]


def launched(command: list[str], environment: dict[str, str]) -> str:
    """What a command prints."""
    given = os.environ | {"WANDB_MODE": "disabled", "OMP_NUM_THREADS": "1"} | environment
    finished = subprocess.run(command, capture_output=True, text=True, env=given, check=False)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def run(command: list[str], tiny_config: Path, folder: Path, *options: str) -> str:
    place = ["--trainer.default_root_dir", str(folder), *OPTIONS, *options]
    return launched([sys.executable, *command, "train", "--config", str(tiny_config), *place], {})


TWO = ("--data.batch_size", "1", "--trainer.devices", "2", "--trainer.strategy", "ddp")
"""Two processes of half the images each."""


def column(folder: Path, name: str) -> list[float]:
    with (folder / "csv" / "metrics.csv").open() as file:
        return [float(row[name]) for row in csv.DictReader(file) if row.get(name)]


@pytest.fixture(scope="module")
def alone(tiny_config: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("alone")
    run(["-m", "captioning"], tiny_config, folder, "--data.batch_size", "2")
    return folder


@pytest.mark.parametrize(
    "launcher",
    [
        ["-m", "captioning"],  # Lightning starts the second process
        ["-m", "torch.distributed.run", "--nproc-per-node=2", "-m", "captioning"],
    ],
    ids=["lightning", "torchrun"],
)
def test_two_processes_train_as_one(
    launcher: list[str], alone: Path, tiny_config: Path, tmp_path: Path
) -> None:
    printed = run(launcher, tiny_config, tmp_path, *TWO)
    losses, expected = column(tmp_path, "train/loss"), column(alone, "train/loss")
    assert len(expected) == 6
    assert losses == pytest.approx(expected, rel=1e-5)
    for score in ("val/BLEU-4", "val/BLEU-1"):
        assert column(tmp_path, score) == column(alone, score)
    assert printed.splitlines() == [str(tmp_path / "best.ckpt")]
    first, second = (saved(folder)["state_dict"] for folder in (alone, tmp_path))
    torch.testing.assert_close(first, second, rtol=1e-4, atol=1e-5)


SRUN = """#!/usr/bin/env bash
# What srun does, for two tasks on this machine.
export SLURM_NTASKS=2
for task in 0 1; do
    SLURM_PROCID=$task SLURM_LOCALID=$task SLURM_NODEID=0 SLURM_STEP_ID=0 "$@" &
done
wait -n
wait -n
"""


def test_the_slurm_script_trains_as_one_process(
    alone: Path, tiny_config: Path, tmp_path: Path
) -> None:
    checkout, folder = tmp_path / "checkout", tmp_path / "run"
    (checkout / ".venv" / "bin").mkdir(parents=True)
    (checkout / ".venv" / "bin" / "activate").touch()
    (tmp_path / "srun").write_text(SRUN)
    (tmp_path / "srun").chmod(0o755)
    script = Path(__file__).parents[2] / "scripts" / "slurm_train.sh"
    path = os.pathsep.join([str(tmp_path), str(Path(sys.executable).parent), os.environ["PATH"]])
    slurm = {"JOB_ID": "1", "JOB_NAME": "captioning", "NODELIST": "localhost", "NNODES": "1"}
    slurm |= {"NTASKS": "2", "NTASKS_PER_NODE": "2", "SUBMIT_DIR": str(checkout)}
    environment = {f"SLURM_{name}": value for name, value in slurm.items()}
    environment |= {"MASTER_PORT": str(20000 + os.getpid() % 10000), "PATH": path}
    command = ["bash", str(script), "--config", str(tiny_config), "--data.batch_size", "1"]
    launched([*command, "--trainer.default_root_dir", str(folder), *OPTIONS], environment)
    assert column(folder, "train/loss") == pytest.approx(column(alone, "train/loss"), rel=1e-5)
