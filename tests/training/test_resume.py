"""A training goes on where it was interrupted, and its folder keeps what is in it."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from pytorch_lightning import LightningModule

from captioning.errors import InputError
from captioning.kernels import plain_losses
from captioning.kernels.compiled import Compiled
from captioning.training.checkpoints import PARTS, read_checkpoint
from captioning.training.loggers import keep_steps
from captioning.training.train_cli import TrainCLI, plain_messages
from captioning.training.validation_images import PAGE
from tests.conftest import quick_ones
from tests.training.conftest import (
    Capture,
    Patch,
    Train,
    assert_same_training,
    interrupt_at,
    saved,
    with_scores,
)
from tests.training.test_averaging import AVERAGED, SECOND_STAGE
from tests.training.test_sampled_bound import SAMPLED_BOUND

ONE, TWO = "--trainer.max_epochs=1", "--trainer.max_epochs=2"

TERMINATED = """
import signal
from captioning.__main__ import run
from captioning.training.module import CaptioningModule
CaptioningModule.training_step = lambda *_: signal.raise_signal(signal.SIGTERM)
run()
"""


AFTER, WITHIN = ("--save_every=10", 3), ("--save_every=0", 5)
TWO_BATCHES = ("--trainer.accumulate_grad_batches=2", "--data.batch_size=1")
RESUMED: dict[str, tuple[str, int, tuple[str, ...]]] = {
    "within epochs": (*WITHIN, ()),
    "after epochs": (*AFTER, ()),
    "with a worker": (*WITHIN, ("--data.workers=1",)),
    "gradients accumulate": ("--save_every=0", 2, TWO_BATCHES),  # those of one batch are lost
    "averaged": (*WITHIN, AVERAGED),
    "averaged second stage": (*AFTER, SECOND_STAGE),
    "a baseline": (*WITHIN, SAMPLED_BOUND),
}
"""Trainings: when they save, after which step they resume, and options."""


@pytest.mark.parametrize("kind", quick_ones(RESUMED, lambda kind: kind == "within epochs"))
def test_resuming_after_an_interrupt_equals_never_stopping(
    train_into: Train, kind: str, checkpoint: Path, tmp_path: Path, monkeypatch: Patch
) -> None:
    save_every, step, more = RESUMED[kind]
    options = [option.replace("CHECKPOINT", str(checkpoint)) for option in more]
    options += ["--data.augment=true", save_every, TWO]
    options += ["--trainer.check_val_every_n_epoch=2"]  # the first validation follows batch 5
    before = signal.getsignal(signal.SIGINT)
    whole = train_into("whole", *options)
    with monkeypatch.context() as patch:
        interrupt_at(5, patch)  # in the middle of an epoch
        with pytest.raises(KeyboardInterrupt, match="--resume"):
            train_into("parts", *options)
    assert signal.getsignal(signal.SIGINT) is before
    assert saved(tmp_path / "parts")["global_step"] == step
    parts = train_into("parts", *options, "--resume")
    assert_same_training(whole, parts)
    assert saved(parts, "best.ckpt")["global_step"] == saved(whole, "best.ckpt")["global_step"]


@pytest.mark.usefixtures("two_epochs")
def test_later_steps_are_compiled_also_when_resumed(train_into: Train, monkeypatch: Patch) -> None:
    is_compiled: list[bool] = []
    monkeypatch.setattr("captioning.kernels.compiled.compile_from_now", is_compiled.append)
    train_into("run", "--compile_after=7", "--resume")
    assert is_compiled == [False, True, True, False]  # of steps 7, 8 and 9; the training is over


def test_on_a_gpu_encoder_and_loss_are_compiled(train_into: Train, monkeypatch: Patch) -> None:
    compiled: list[str] = []

    def plainly(function: Any, trains: bool) -> Any:
        compiled.append(function.__name__)
        return function

    monkeypatch.setattr("captioning.kernels.COMPILES", ("cpu",))
    monkeypatch.setattr("captioning.kernels.compiled._compile", plainly)
    fresh = Compiled(plain_losses, trains=True)  # other tests' stays compiled
    monkeypatch.setattr("captioning.kernels.compiled._losses", fresh)
    train_into("run", "--compile_after=1", "--trainer.max_steps=2", "--trainer.precision=32-true")
    assert compiled == ["encode", "plain_losses"]


@pytest.mark.integration
def test_sigterm_ends_with_a_line_that_says_how_to_continue(
    tiny_config: Path, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", TERMINATED, "train", "--config", str(tiny_config)]
    command += ["--trainer.default_root_dir", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 143
    last = ended.stderr.splitlines()[-1]
    assert last == "captioning: interrupted; continue by the same command with --resume"
    assert ended.stdout == ""


def test_a_moved_run_resumes_with_its_best_checkpoint(
    train_into: Train, two_epochs: Path, tmp_path: Path, monkeypatch: Patch
) -> None:
    two_epochs.rename(tmp_path / "there")
    with_scores(monkeypatch, 0.0, -1.0)  # less than before
    folder = train_into("there", "--resume")
    assert saved(folder)["epoch"] == 2
    assert saved(folder, "best.ckpt")["epoch"] == 1
    for name in ("csv", "csv-2"):
        assert "val/BLEU-4" in (folder / name / "metrics.csv").read_text()


def test_an_overwritten_run_is_never_resumed_from(
    train_into: Train, two_epochs: Path, monkeypatch: Patch
) -> None:
    interrupt_at(1, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        train_into("run", "--overwrite")
    assert not (two_epochs / "last.ckpt").exists()
    assert not (two_epochs / "best.ckpt").exists()


@pytest.mark.parametrize(
    ("rows", "kept"),
    [
        ("step,loss\n0,1.5\n1,1.25\n5,9", ["step,loss", "0,1.5", "1,1.25"]),
        ("step,loss\n0,1.5\n1,1.25\n2,2.5\n", ["step,loss", "0,1.5", "1,1.25"]),
        ("step,lo", None),
    ],
    ids=["a row cut short", "a step that is repeated", "a header cut short"],
)
def test_a_kill_leaves_whole_rows_of_the_steps_done(
    rows: str, kept: list[str] | None, tmp_path: Path
) -> None:
    table = tmp_path / "metrics.csv"
    table.write_text(rows)
    keep_steps(table, 2)
    assert (table.read_text().split() if table.exists() else None) == kept


def test_damaged_checkpoints_and_other_models_are_refused(
    train_into: Train, two_epochs: Path, tiny_config: Path
) -> None:
    last = two_epochs / "last.ckpt"
    with pytest.raises(InputError, match="belongs to another model"):
        train_into("run", "--resume", "--model.decoder.init_args.hidden_dim=9")
    with pytest.raises(InputError, match="other parts of the model were trained"):
        train_into("run", "--resume", "--model.encoder.init_args.trainable_stages=0")
    whole, content = last.read_bytes(), saved(last.parent)
    with plain_messages():
        model = TrainCLI(["--config", str(tiny_config), "--trainer.fast_dev_run=true"]).model
    torch.save({"state_dict": content["state_dict"]}, last)
    for damaged in (last.read_bytes(), b"", b"text", whole[: len(whole) // 2]):
        last.write_bytes(damaged)
        with pytest.raises(InputError, match=r"damaged.*start again with --overwrite"):
            read_checkpoint(last, model)


@pytest.mark.parametrize("options", [(), ("--resume",)], ids=["new", "resumed"])
def test_a_best_checkpoint_without_a_last_one_is_never_lost(
    options: tuple[str, ...], train_into: Train, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    kept = {"best.ckpt": b"a model", "config.yaml": b"its settings"}
    for name, content in kept.items():
        (folder / name).write_bytes(content)
    with pytest.raises(InputError, match=r"best\.ckpt: damaged|earlier run.*--overwrite"):
        train_into("run", ONE, *options)
    assert {file.name: file.read_bytes() for file in folder.glob("[!.]*")} == kept


def test_resuming_an_ended_training_says_what_to_raise(
    train_into: Train, two_epochs: Path, capsys: Capture
) -> None:
    before = {path: path.stat().st_mtime_ns for path in two_epochs.rglob("*")}
    capsys.readouterr()
    for given in (ONE, TWO):
        train_into("run", given, "--resume")
        [line] = capsys.readouterr().err.splitlines()
        assert "nothing is left to train: it ended after epoch 2; to continue, raise trai" in line
    assert {path: path.stat().st_mtime_ns for path in two_epochs.rglob("*")} == before


def test_an_early_stopped_training_continues_with_more_patience(
    train_into: Train, monkeypatch: Patch, capsys: Capture
) -> None:
    with_scores(monkeypatch, 0.0, 0.3, 0.2, 0.0, 0.1, 0.1)
    patience = "--early_stopping.patience"
    folder = train_into("run", patience, "1", "--trainer.max_epochs=9")
    assert "stopped after epoch 2: Monitored metric val/BLEU-4 did not improve" in (
        capsys.readouterr().err
    )
    train_into("run", patience, "1", "--trainer.max_epochs=9", "--resume")
    assert "stopped early after epoch 2; to continue, raise early_st" in capsys.readouterr().err
    train_into("run", patience, "3", "--trainer.max_epochs=9", "--resume")
    assert saved(folder)["epoch"] == 3


def test_scores_of_0_stop_nothing(train_into: Train, monkeypatch: Patch, capsys: Capture) -> None:
    with_scores(monkeypatch, 0.0, 0.0, 3e-9, 1e-9)  # BLEU of no common n-grams
    page = "--validation_page.images=1"
    folder = train_into("run", "--early_stopping.patience", "1", page)  # 3 epochs
    assert "best: epoch 3<" in (folder / PAGE).read_text()
    assert saved(folder, "best.ckpt")["epoch"] == saved(folder)["epoch"] == 2
    assert "best val/BLEU-4: 0.0000, as no caption resembles" in capsys.readouterr().err


def test_a_resumed_training_reports_changed_settings_and_another_order_of_photos(
    train_into: Train, two_epochs: Path, capsys: Capture
) -> None:
    before = (two_epochs / "config.yaml").read_bytes()
    for option in ("learning_rate=0.5", "weight_decay=0.5"):
        with pytest.raises(InputError, match=r"model\.\w+: resumed with 0\.5, begun with 0\.\d+"):
            train_into("run", f"--model.{option}", "--resume")
    content = saved(two_epochs)
    del content["CaptionData"]
    torch.save(content, two_epochs / "last.ckpt")
    capsys.readouterr()
    train_into("run", "--data.batch_size=3", "--resume")
    told = capsys.readouterr().err
    assert "resumed with another data.batch_size: 2 before, 3 now" in told.splitlines()
    assert "last.ckpt: lacks the order of the photos, which will be another one" in told
    assert "CaptionData" in saved(two_epochs)
    assert (two_epochs / "config.yaml").read_bytes() != before


@pytest.mark.parametrize(
    "part",
    [
        "callbacks: [{class_path: ModelCheckpoint, init_args: {dirpath: OTHER, filename: best}}]",
        "callbacks: [{class_path: ModelCheckpoint, init_args: {filename: ../../../other/best}}]",
        "callbacks: [{class_path: ModelCheckpoint, init_args: {auto_insert_metric_name: false, "
        "filename: '{epoch:/>2}/..OTHER/best'}}]",  # as a format, an absolute path
        "logger: {class_path: WandbLogger, init_args: {save_dir: OTHER, offline: true}}",
        "logger: {class_path: CSVLogger, init_args: {save_dir: OTHER, name: '', version: csv}}",
        "logger: {class_path: CSVLogger, init_args: {save_dir: RUN, name: ../other}}",
    ],
)
def test_a_configuration_writes_into_no_other_run(
    part: str, train_into: Train, tmp_path: Path
) -> None:
    places = part.replace("OTHER", str(tmp_path / "other")).replace("RUN", str(tmp_path / "run"))
    (tmp_path / "delta.yaml").write_text(f"trainer: {{{places}}}")
    with pytest.raises(InputError, match=r"outside of the run's folder"):
        train_into("run", "--config", str(tmp_path / "delta.yaml"))
    assert not (tmp_path / "other").exists()


def test_a_checkpoint_to_resume_from_names_the_part_that_it_lacks(
    checkpoint: Path, tmp_path: Path
) -> None:
    content, path = saved(checkpoint.parent), tmp_path / "last.ckpt"
    for part in PARTS:
        torch.save({name: value for name, value in content.items() if name != part}, path)
        with pytest.raises(InputError, match=rf"last\.ckpt: damaged.* lacks '{part}'"):
            read_checkpoint(path, LightningModule())
