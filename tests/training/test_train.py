import shutil
from pathlib import Path

import pytest
import wandb

from captioning.captioner import load
from captioning.errors import InputError
from captioning.models.encoder import measured_offset
from captioning.training.configuration import yaml_value
from captioning.training.train_cli import train
from tests.training.conftest import Capture, Patch, Train, assert_same_training, saved


def test_the_saved_configuration_gives_the_same_run(two_epochs: Path, tmp_path: Path) -> None:
    config = ["--config", str(two_epochs / "config.yaml")]
    train([*config, "--trainer.default_root_dir", str(tmp_path / "again"), "--overwrite"])
    assert_same_training(two_epochs, tmp_path / "again")
    assert yaml_value((tmp_path / "again/config.yaml").read_text())["overwrite"] is False


def test_an_earlier_run_is_not_written_over(
    train_into: Train, checkpoint: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(checkpoint.parent, tmp_path / "run")
    files = [folder / "last.ckpt", folder / "csv" / "metrics.csv"]
    before = [file.read_bytes() for file in files]
    with pytest.raises(InputError, match=r"contains an earlier run.*--resume.*--overwrite"):
        train_into("run")
    train_into("run", "--trainer.fast_dev_run=true", "--resume")
    assert [file.read_bytes() for file in files] == before


def test_a_shell_of_a_slurm_job_trains_and_a_profile_is_shown(
    train_into: Train, monkeypatch: Patch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SLURM_JOB_NAME", "sys/dashboard")
    for name in ("JOB_ID", "PROCID", "LOCALID", "NODEID"):
        monkeypatch.setenv(f"SLURM_{name}", "0")
    monkeypatch.setenv("SLURM_NTASKS", "2")
    train_into("run", "--trainer.profiler", "simple", "--trainer.max_steps", "1")
    [report] = [record.message for record in caplog.records if "Percentage" in record.message]
    assert "run_training_batch" in report


def test_a_training_may_end_before_its_first_validation(
    train_into: Train, tiny_config: Path, tmp_path: Path, capsys: Capture
) -> None:
    options = ("--trainer.logger", "false", "--trainer.max_steps", "2")
    silent = train_into("silent", *options, "--trainer.enable_progress_bar", "false")
    assert saved(silent)["global_step"] == 2
    assert capsys.readouterr().err == ""
    place = ["--trainer.default_root_dir", str(tmp_path / "run")]
    assert train(["--config", str(tiny_config), *place, *options]) == tmp_path / "run/last.ckpt"
    assert "there is no best.ckpt: no validation has run" in capsys.readouterr().err


LISTED = """
trainer:
  max_epochs: 3
  callbacks:
    - class_path: pytorch_lightning.callbacks.EarlyStopping
      init_args: {monitor: val/BLEU-1, mode: max, stopping_threshold: -1.0}
    - class_path: pytorch_lightning.callbacks.GradientAccumulationScheduler
      init_args: {scheduling: {0: 3}}
    - class_path: ModelCheckpoint
      init_args: {dirpath: FOLDER, filename: "{epoch}"}
  logger:
    - class_path: pytorch_lightning.loggers.CSVLogger
      init_args: {save_dir: FOLDER, name: logged, version: first}
    MORE
"""


BOARD = """- class_path: WandbLogger
      init_args: {save_dir: FOLDER, offline: true}
  strategy: {class_path: DDPStrategy}
"""


@pytest.mark.parametrize(
    "more",
    ["", pytest.param(BOARD, marks=pytest.mark.integration)],
    ids=["alone", "with W&B and DDP"],
)
def test_every_listed_class_of_lightning_works(
    more: str, train_into: Train, tmp_path: Path
) -> None:
    wandb.teardown()  # settings of earlier tests, which Lightning's `offline` would not change
    delta = tmp_path / "delta.yaml"
    there = tmp_path / "run" / "there"
    delta.write_text(LISTED.replace("MORE", more).replace("FOLDER", str(there)))
    last = saved(train_into("run", "--config", str(delta)))
    assert (last["epoch"], last["global_step"]) == (0, 1)  # one step of three batches
    assert (there / "epoch=0.ckpt").exists()
    assert (there / "logged" / "first" / "metrics.csv").exists()
    assert (there / "wandb").exists() == bool(more)


def test_the_best_checkpoint_has_the_offset_of_its_encoder(train_into: Train) -> None:
    run = train_into("run", "--model.encoder_learning_rate=0.01", "--trainer.max_epochs=1")
    captioner = load(run / "best.ckpt")
    side = captioner.preprocessing.size
    measured = measured_offset(captioner.model.encoder, side)
    assert captioner.model.encoder.offsets == {side: measured}
    assert load(run / "last.ckpt").model.encoder.offset(side) != (0, 0)
