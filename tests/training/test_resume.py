import csv
import signal
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch

from captioning.errors import InputError
from captioning.training.checkpoints import LastCheckpoint, check_resumable
from captioning.training.configured_training import TrainCLI
from captioning.training.loggers import keep_steps
from captioning.training.module import CaptioningModule
from captioning.training.train_cli import plain_messages
from tests.conftest import files_no_larger_than
from tests.training.conftest import (
    Train,
    assert_same_training,
    ended_by,
    interrupt_at,
    saved,
    with_scores,
)

ONE, TWO = "--trainer.max_epochs=1", "--trainer.max_epochs=2"


def logged(folder: Path) -> list[tuple[int, str]]:
    """The loss of every step in the run's CSVs, in order."""
    return [
        (int(row["step"]), row["train/loss"])
        for part in sorted(folder.glob("csv*/metrics.csv"))
        for row in csv.DictReader(part.read_text().splitlines())
        if row["train/loss"]
    ]


@pytest.mark.parametrize(
    ("save_every", "workers"),
    [
        ("0", "0"),
        pytest.param("10", "0", marks=pytest.mark.integration),
        pytest.param("0", "1", marks=pytest.mark.integration),
    ],
    ids=["within epochs", "after epochs", "with a worker"],
)
def test_resuming_after_an_interrupt_equals_never_stopping(
    train_into: Train,
    workers: str,
    save_every: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = ("--data.augment", "true", "--data.workers", workers, "--save_every", save_every)
    options += ("--trainer.check_val_every_n_epoch", "2")  # the first validation follows step 5
    before = signal.getsignal(signal.SIGINT)
    whole = train_into("whole", *options)
    with monkeypatch.context() as patch:
        interrupt_at(4, patch)  # in the middle of the second of three epochs
        with pytest.raises(KeyboardInterrupt, match="--resume"):
            train_into("parts", *options)
    assert signal.getsignal(signal.SIGINT) is before
    assert saved(tmp_path / "parts")["global_step"] == (4 if save_every == "0" else 3)
    parts = train_into("parts", *options, "--resume")
    assert_same_training(whole, parts)
    assert saved(parts, "best.ckpt")["global_step"] == saved(whole, "best.ckpt")["global_step"]


def test_a_training_interrupted_before_its_first_last_checkpoint_resumes_from_the_best(
    train_into: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = train_into("whole")

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(LastCheckpoint, "on_train_epoch_end", interrupt)
        with pytest.raises(KeyboardInterrupt):
            train_into("parts")
    assert not (tmp_path / "parts/last.ckpt").exists()
    assert_same_training(whole, train_into("parts", "--resume"))


@pytest.mark.integration
def test_resuming_with_accumulated_gradients_equals_never_stopping(
    train_into: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("--trainer.accumulate_grad_batches", "2", "--data.batch_size", "1", ONE)
    whole = train_into("whole", *options)
    step = CaptioningModule.training_step

    def training_step(self: CaptioningModule, batch: Any, index: int) -> Any:
        if index == 3:  # the gradients of the third batch wait for those of the fourth
            raise KeyboardInterrupt
        return step(self, batch, index)

    with monkeypatch.context() as patch:
        patch.setattr(CaptioningModule, "training_step", training_step)
        with pytest.raises(KeyboardInterrupt):
            train_into("parts", *options, "--save_every", "0")
    assert saved(whole.with_name("parts"))["global_step"] == 1
    assert_same_training(whole, train_into("parts", *options, "--resume"))


@pytest.mark.integration
@pytest.mark.parametrize("save_every", ["10", "0"], ids=["after epochs", "within epochs"])
def test_resuming_after_a_kill_equals_never_stopping(
    train_into: Train, tiny_config: Path, tmp_path: Path, save_every: str
) -> None:
    often = ["--trainer.log_every_n_steps", "1", "--save_every", save_every]
    folder = ["--config", str(tiny_config), "--trainer.default_root_dir", str(tmp_path / "parts")]
    process = ended_by(signal.SIGKILL, 7, [*folder, *often])
    assert process.returncode == -signal.SIGKILL, process.stderr
    whole, parts = train_into("whole", *often), train_into("parts", *often, "--resume")
    assert_same_training(whole, parts)
    assert [step for step, _ in logged(whole)] == list(range(9))
    assert logged(parts) == logged(whole)


@pytest.mark.integration
@pytest.mark.parametrize("is_program", [True, False], ids=["command", "Python"])
def test_sigterm_ends_a_training_with_a_line_that_says_how_to_continue(
    tiny_config: Path, tmp_path: Path, is_program: bool
) -> None:
    folder = ["--config", str(tiny_config), "--trainer.default_root_dir", str(tmp_path / "run")]
    call = "sys.exit(main())" if is_program else "train(sys.argv[2:])"
    ended = ended_by(signal.SIGTERM, 4, folder, call)
    last = ended.stderr.splitlines()[-1]
    if is_program:
        assert ended.returncode == 143
        assert last == "captioning: interrupted; continue by the same command with --resume"
    else:
        assert last.startswith("KeyboardInterrupt: interrupted; continue by")
    assert ended.stdout == ""
    assert (tmp_path / "run/last.ckpt").exists()


@pytest.mark.integration
def test_an_interrupt_right_after_a_checkpoint_loses_no_row(
    train_into: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("--trainer.log_every_n_steps", "1", "--save_every", "0")
    whole = train_into("whole", *options)
    save = LastCheckpoint.on_train_batch_end

    def save_and_end(self: LastCheckpoint, trainer: Any, *arguments: Any) -> None:
        save(self, trainer, *arguments)
        if trainer.global_step == 5:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(LastCheckpoint, "on_train_batch_end", save_and_end)
        with pytest.raises(KeyboardInterrupt):
            train_into("parts", *options)
    parts = train_into("parts", *options, "--resume")
    assert len(logged(whole)) == 9
    assert logged(parts) == logged(whole)


def test_a_full_disk_keeps_the_earlier_checkpoints(train_into: Train) -> None:
    folder = train_into("run", ONE)
    before = {name: (folder / name).read_bytes() for name in ("best.ckpt", "last.ckpt")}
    with (
        files_no_larger_than(len(before["last.ckpt"]) // 2),
        pytest.raises(InputError, match=r"\.ckpt: cannot be written"),
    ):
        train_into("run", TWO, "--resume")
    assert {name: (folder / name).read_bytes() for name in before} == before
    (folder / ".last.abcdefgh.ckpt").touch()  # as a kill leaves it
    train_into("run", TWO, "--resume")
    assert not list(folder.glob(".*.ckpt"))
    assert saved(folder)["epoch"] == 1


def test_a_moved_run_resumes_with_its_scores_and_its_best_checkpoint(
    train_into: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_scores(monkeypatch, 0.0, 0.3, 0.1, 0.0, 0.2)
    train_into("here", TWO).rename(tmp_path / "there")
    folder = train_into("there", "--resume")
    assert saved(folder)["epoch"] == 2
    assert saved(folder, "best.ckpt")["epoch"] == 0
    for name in ("csv", "csv-2"):
        assert "val/BLEU-4" in (folder / name / "metrics.csv").read_text()


def test_an_overwritten_run_is_never_resumed_from(
    train_into: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train_into("run", ONE)
    interrupt_at(1, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        train_into("run", "--overwrite")
    assert not (tmp_path / "run/last.ckpt").exists()
    assert not (tmp_path / "run/best.ckpt").exists()


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


@pytest.fixture
def last(train_into: Train) -> Path:
    return train_into("run", ONE) / "last.ckpt"


def training(config: Path, *options: str) -> tuple[CaptioningModule, pl.Trainer]:
    """A training with these options, before its first step."""
    with plain_messages():
        made = TrainCLI(["--config", str(config), "--trainer.fast_dev_run=true", *options])
    assert isinstance(made.model, CaptioningModule)
    return made.model, made.trainer


def refusal(path: Path, of: tuple[CaptioningModule, pl.Trainer]) -> str:
    with pytest.raises(InputError) as error:
        check_resumable(path, *of)
    message = str(error.value)
    assert message.startswith(f"{path}: cannot be resumed from (")
    return message


def test_a_damaged_checkpoint_is_refused(train_into: Train, last: Path, tiny_config: Path) -> None:
    ours = training(tiny_config)
    check_resumable(last, *ours)
    whole, content = last.read_bytes(), saved(last.parent)
    for damaged in [b"", b"text", whole[:-1], whole[: len(whole) // 2]]:
        last.write_bytes(damaged)
        assert "damaged" in refusal(last, ours)
    last.write_bytes(whole[:-1])
    with pytest.raises(InputError, match=r"damaged.*start again with --overwrite"):
        train_into("run", "--resume", TWO)
    for key in ("loops", "callbacks", "optimizer_states", "state_dict"):
        torch.save({name: value for name, value in content.items() if name != key}, last)
        assert "not a checkpoint of a training" in refusal(last, ours)
    torch.save(content | {"loops": {"fit_loop": {"epoch_progress": 3}}}, last)
    assert "values of other types" in refusal(last, ours)


def test_a_checkpoint_of_another_model_is_refused(last: Path, tiny_config: Path) -> None:
    larger = training(tiny_config, "--model.decoder.init_args.hidden_dim=9")
    assert "has the shape" in refusal(last, larger)
    frozen = training(tiny_config, "--model.encoder.init_args.trainable_stages=0")
    assert "other parts" in refusal(last, frozen)
