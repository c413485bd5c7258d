import csv
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from captioning.errors import InputError
from captioning.training.callbacks import LastCheckpoint
from captioning.training.loggers import MetricsTable, keep_steps
from tests.conftest import files_no_larger_than
from tests.training.conftest import Train, assert_same_training, interrupt_at, saved, with_scores


def logged(folder: Path) -> list[tuple[int, str]]:
    """The loss of every step that the run's CSVs tell of, one after the other."""
    return [
        (int(row["step"]), row["train/loss"])
        for part in sorted(folder.glob("csv*/metrics.csv"))
        for row in csv.DictReader(part.read_text().splitlines())
        if row["train/loss"]
    ]


@pytest.mark.parametrize("save_every", ["10", "0"], ids=["by epochs", "within epochs"])
@pytest.mark.parametrize("workers", ["0", "1"])
def test_resuming_after_an_interrupt_equals_never_stopping(
    trained: Train, workers: str, save_every: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("--data.augment", "true", "--data.workers", workers, "--save_every", save_every)
    whole = trained("whole", *options)
    with monkeypatch.context() as patch:
        interrupt_at(4, patch)  # in the middle of the second of three epochs
        with pytest.raises(KeyboardInterrupt, match="--resume"):
            trained("parts", *options)
    assert saved(tmp_path / "parts")["global_step"] == (4 if save_every == "0" else 3)
    assert_same_training(whole, trained("parts", *options, "--resume"))


@pytest.mark.parametrize("save_every", ["10", "0"], ids=["by epochs", "within epochs"])
def test_resuming_after_a_kill_equals_never_stopping(
    trained: Train, tiny_config: Path, tmp_path: Path, save_every: str
) -> None:
    often = ["--trainer.log_every_n_steps", "1", "--save_every", save_every]
    folder = ["--config", str(tiny_config), "--trainer.default_root_dir", str(tmp_path / "parts")]
    killed = f"""
import os, signal, torch
torch.set_num_threads(1)  # as in this process: another number adds up in another order
from captioning.training.module import CaptioningModule
from captioning.training.train_cli import train

whole = CaptioningModule.training_step

def training_step(self, batch, index):
    if self.global_step == 7:
        os.kill(os.getpid(), signal.SIGKILL)
    return whole(self, batch, index)

CaptioningModule.training_step = training_step
train({[*folder, *often]!r})
"""
    process = subprocess.run([sys.executable, "-c", killed], capture_output=True, check=False)
    assert process.returncode == -signal.SIGKILL, process.stderr
    whole, parts = trained("whole", *often), trained("parts", *often, "--resume")
    assert_same_training(whole, parts)
    assert [step for step, _ in logged(whole)] == list(range(9))
    assert logged(parts) == logged(whole)


@pytest.mark.parametrize("save_every", ["10", "0"], ids=["by epochs", "within epochs"])
def test_a_training_stopped_before_its_first_validation_resumes(
    trained: Train, save_every: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("--trainer.check_val_every_n_epoch", "2", "--save_every", save_every)
    whole = trained("whole", *options)
    with monkeypatch.context() as patch:
        interrupt_at(4, patch)  # the first validation follows step 5
        with pytest.raises(KeyboardInterrupt, match="--resume"):
            trained("parts", *options)
    parts = trained("parts", *options, "--resume")
    assert_same_training(whole, parts)
    assert saved(parts, "best.ckpt")["global_step"] == saved(whole, "best.ckpt")["global_step"]


def test_a_full_disk_keeps_the_checkpoints_and_metrics_of_before(
    trained: Train, tmp_path: Path
) -> None:
    folder = trained("run", "--trainer.max_epochs", "1")
    before = {name: (folder / name).read_bytes() for name in ("best.ckpt", "last.ckpt")}
    with (
        files_no_larger_than(len(before["last.ckpt"]) // 2),
        pytest.raises(InputError, match=r"\.ckpt: cannot be written"),
    ):
        trained("run", "--trainer.max_epochs", "2", "--resume")
    assert {name: (folder / name).read_bytes() for name in before} == before
    assert not list(folder.glob(".*.ckpt"))
    trained("run", "--trainer.max_epochs", "2", "--resume")
    assert saved(folder)["epoch"] == 1


def test_a_kill_while_a_checkpoint_is_written_leaves_nothing_after_the_next_start(
    trained: Train, tmp_path: Path
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".last.abcdefgh.ckpt").touch()
    assert not list(trained("run").glob(".*.ckpt"))


def test_rows_that_do_not_fit_the_disk_leave_the_earlier_ones(tmp_path: Path) -> None:
    table = MetricsTable(tmp_path, name="", version="csv")
    table.log_metrics({"train/loss": 1.5}, step=0)
    table.save()
    path = tmp_path / "csv" / "metrics.csv"
    before = path.read_text()
    for step in range(1, 50):
        table.log_metrics({"train/loss": 1.5}, step=step)
    with (
        files_no_larger_than(len(before) + 10),
        pytest.raises(InputError, match=r"metrics\.csv: cannot be written"),
    ):
        table.save()
    assert path.read_text() == before


def test_a_new_score_keeps_the_rows_of_before(tmp_path: Path) -> None:
    table = MetricsTable(tmp_path, name="", version="csv")
    for name in ("train/loss", "val/BLEU-4"):
        table.log_metrics({name: 1.5}, step=0)
        table.save()
    written = (tmp_path / "csv" / "metrics.csv").read_text().split()
    assert written == ["step,train/loss,val/BLEU-4", "0,1.5,", "0,,1.5"]


def test_a_kill_right_after_a_checkpoint_loses_no_row(
    trained: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("--trainer.log_every_n_steps", "1", "--save_every", "0")
    whole = trained("whole", *options)
    save = LastCheckpoint.on_train_batch_end

    def save_and_end(self: LastCheckpoint, trainer: Any, *arguments: Any) -> None:
        save(self, trainer, *arguments)
        if trainer.global_step == 5 and self.minutes is not None:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(LastCheckpoint, "on_train_batch_end", save_and_end)
        with pytest.raises(KeyboardInterrupt):
            trained("parts", *options)
    parts = trained("parts", *options, "--resume")
    assert len(logged(whole)) == 9
    assert logged(parts) == logged(whole)


def test_an_interrupt_leaves_interrupts_switched_on(
    trained: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = signal.getsignal(signal.SIGINT)
    interrupt_at(1, monkeypatch)
    with pytest.raises(KeyboardInterrupt, match="no epoch was finished"):
        trained("parts")
    assert signal.getsignal(signal.SIGINT) is before


def test_a_training_can_resume_with_more_epochs(trained: Train) -> None:
    trained("run", "--trainer.max_epochs", "1")
    assert saved(trained("run", "--trainer.max_epochs", "2", "--resume"))["epoch"] == 1


def test_resuming_keeps_the_scores_of_earlier_epochs(trained: Train) -> None:
    trained("run", "--trainer.max_epochs", "1")
    folder = trained("run", "--trainer.max_epochs", "2", "--resume")
    first, second = ((folder / name / "metrics.csv").read_text() for name in ("csv", "csv-2"))
    assert "val/BLEU-4" in first
    assert "val/BLEU-4" in second


def test_a_resumed_training_remembers_how_good_the_best_epoch_was(
    trained: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_scores(monkeypatch, 0.0, 0.3, 0.0, 0.2)
    trained("run", "--trainer.max_epochs", "1")
    folder = trained("run", "--trainer.max_epochs", "2", "--resume")
    assert saved(folder, "best.ckpt")["epoch"] == 0


def test_a_moved_run_that_resumes_keeps_its_best_checkpoint(
    trained: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_scores(monkeypatch, 0.0, 0.3, 0.1, 0.0, 0.2)
    trained("here", "--trainer.max_epochs", "2").rename(tmp_path / "there")
    assert saved(trained("there", "--resume"), "best.ckpt")["epoch"] == 0


def test_an_overwritten_run_is_never_resumed_from(
    trained: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained("run")
    interrupt_at(1, monkeypatch)
    with pytest.raises(KeyboardInterrupt, match="no epoch was finished"):
        trained("run", "--overwrite")
    assert not (tmp_path / "run/last.ckpt").exists()
    assert not (tmp_path / "run/best.ckpt").exists()


def test_the_time_told_of_a_resumed_epoch_is_since_it_resumed(
    trained: Train, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        interrupt_at(4, patch)
        with pytest.raises(KeyboardInterrupt):
            trained("run", "--save_every", "0")
    capsys.readouterr()
    # On a machine that started long ago, so that a beginning left at zero shows.
    clock = SimpleNamespace(monotonic=lambda: 1e6 + time.monotonic())
    monkeypatch.setattr("captioning.training.progress.time", clock)
    trained("run", "--resume")
    [line] = (line for line in capsys.readouterr().err.splitlines() if "epoch 2/3" in line)
    assert re.search(r"  \d:\d\d min$", line)


def test_a_row_that_a_kill_cut_short_is_left_out(tmp_path: Path) -> None:
    table = tmp_path / "metrics.csv"
    table.write_text("epoch,step,train/loss\n0,0,1.5\n0,1,1.25\n0,1")
    keep_steps(table, 5)
    assert table.read_text().split() == ["epoch,step,train/loss", "0,0,1.5", "0,1,1.25"]


def test_a_header_that_a_kill_cut_short_is_removed(tmp_path: Path) -> None:
    table = tmp_path / "metrics.csv"
    table.write_text("epoch,step,tra")
    keep_steps(table, 5)
    assert not table.exists()


def test_a_table_with_nothing_to_take_back_is_left_alone(tmp_path: Path) -> None:
    table = tmp_path / "metrics.csv"
    table.write_text("step,train/loss\n0,1.5\n")
    before = table.stat()
    keep_steps(table, 1)
    assert table.stat().st_ino == before.st_ino
