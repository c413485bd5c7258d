import csv
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from captioning.errors import InputError
from captioning.metrics.captions import BLEU
from captioning.metrics.scores import Scores
from captioning.models import load
from captioning.training.module import CaptioningModule
from captioning.training.train import train

Train = Callable[..., Path]


@pytest.fixture(autouse=True)
def without_boards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "disabled")


@pytest.fixture
def trained(tiny_config: Path, tmp_path: Path) -> Train:
    """Trains into a folder of `tmp_path`, with options, and gives the folder."""

    def run(name: str, *options: str) -> Path:
        folder = tmp_path / name
        train(["--config", str(tiny_config), "--trainer.default_root_dir", str(folder), *options])
        return folder

    return run


def saved(folder: Path, name: str = "last.ckpt") -> dict[str, Any]:
    content: dict[str, Any] = torch.load(folder / name, weights_only=True)
    return content


def assert_same_training(first: Path, second: Path) -> None:
    """Exactly the same parameters, buffers and optimiser."""
    ours, theirs = saved(first), saved(second)
    assert ours["global_step"] == theirs["global_step"]
    for part in ("state_dict", "optimizer_states"):
        torch.testing.assert_close(ours[part], theirs[part], rtol=0, atol=0)


def interrupt_at(step: int, patch: pytest.MonkeyPatch) -> None:
    """Let a training be interrupted in this step, counted from 0."""
    whole = CaptioningModule.training_step

    def training_step(self: CaptioningModule, batch: Any, index: int) -> Any:
        if self.global_step == step:
            raise KeyboardInterrupt
        return whole(self, batch, index)

    patch.setattr(CaptioningModule, "training_step", training_step)


def with_scores(monkeypatch: pytest.MonkeyPatch, *scores: float) -> None:
    """Let the check before each training and then each validation have these BLEU-4."""
    coming = iter(scores)

    def scores(self: BLEU, candidates: Any, references: Any) -> Scores:
        return Scores({"BLEU-4": next(coming)}, {})

    monkeypatch.setattr(BLEU, "scores", scores)


def test_the_same_seed_gives_the_same_parameters(trained: Train) -> None:
    assert_same_training(trained("a"), trained("b"))


def test_another_seed_gives_other_parameters(trained: Train) -> None:
    first, second = saved(trained("a")), saved(trained("b", "--seed_everything", "1"))
    name = "captioner.decoder.output.weight"
    assert not torch.equal(first["state_dict"][name], second["state_dict"][name])


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
    options = ["--config", str(tiny_config), "--trainer.default_root_dir", str(tmp_path / "parts")]
    killed = f"""
import os, signal, torch
torch.set_num_threads(1)  # as in this process: another number adds up in another order
from captioning.training.module import CaptioningModule
from captioning.training.train import train

whole = CaptioningModule.training_step

def training_step(self, batch, index):
    if self.global_step == 7:
        os.kill(os.getpid(), signal.SIGKILL)
    return whole(self, batch, index)

CaptioningModule.training_step = training_step
train({[*options, "--save_every", save_every]!r})
"""
    process = subprocess.run([sys.executable, "-c", killed], capture_output=True, check=False)
    assert process.returncode == -signal.SIGKILL, process.stderr
    assert_same_training(trained("whole"), trained("parts", "--resume"))


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


def test_the_best_checkpoint_is_of_the_epoch_with_the_best_score(
    trained: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_scores(monkeypatch, 0.0, 0.1, 0.3, 0.2)
    assert saved(trained("run"), "best.ckpt")["epoch"] == 1


def test_the_last_checkpoint_is_of_the_last_epoch_however_bad_it_was(
    trained: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_scores(monkeypatch, 0.0, 0.1, 0.3, 0.2)
    assert saved(trained("run"))["epoch"] == 2


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


def test_training_stops_when_the_score_no_longer_rises(
    trained: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_scores(monkeypatch, 0.0, 0.3, 0.2, 0.1)
    folder = trained("run", "--early_stopping.patience", "1", "--trainer.max_epochs", "9")
    assert saved(folder)["epoch"] == 1


def test_an_earlier_run_is_not_written_over(trained: Train) -> None:
    before = (trained("run") / "last.ckpt").read_bytes()
    with pytest.raises(InputError, match=r"run: holds an earlier run.*--resume.*--overwrite"):
        folder = trained("run")
    folder = trained("run", "--trainer.fast_dev_run", "true")
    assert (folder / "last.ckpt").read_bytes() == before


def test_an_overwritten_run_is_never_resumed_from(
    trained: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained("run")
    interrupt_at(1, monkeypatch)
    with pytest.raises(KeyboardInterrupt, match="no epoch was finished"):
        trained("run", "--overwrite")
    assert not (tmp_path / "run/last.ckpt").exists()
    assert not (tmp_path / "run/best.ckpt").exists()


def test_the_saved_configuration_gives_the_same_run(trained: Train, tmp_path: Path) -> None:
    folder = trained("run", "--model.learning_rate", "0.02", "--overwrite")
    again = tmp_path / "again"
    train(["--config", f"{folder}/config.yaml", "--trainer.default_root_dir", str(again)])
    assert_same_training(folder, again)
    ours, theirs = (yaml.safe_load((run / "config.yaml").read_text()) for run in (folder, again))
    assert ours["model"] == theirs["model"]
    assert ours["overwrite"] is theirs["overwrite"] is False


def test_a_second_configuration_changes_what_it_names(trained: Train, tmp_path: Path) -> None:
    delta = tmp_path / "delta.yaml"
    delta.write_text("model: {decoder: {init_args: {hidden_dim: 12}}}")
    config = saved(trained("run", "--config", str(delta)))["captioner"]
    assert (config["decoder"]["hidden_dim"], config["decoder"]["embedding_dim"]) == (12, 8)


FROZEN = """
model:
  encoder:
    init_args: {backbone: mobilenet_v2, trainable_stages: STAGES}
"""


@pytest.fixture
def encoders(
    trained: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[int], tuple[dict[str, Any], dict[str, Any]]]:
    """State of an encoder with batch norm before and after training, by its trained stages."""

    def before_and_after(stages: int) -> tuple[dict[str, Any], dict[str, Any]]:
        states = []
        start = CaptioningModule.on_fit_start

        def on_fit_start(self: CaptioningModule) -> None:
            start(self)
            state = self.captioner.encoder.state_dict()
            states.append({name: value.clone() for name, value in state.items()})

        monkeypatch.setattr(CaptioningModule, "on_fit_start", on_fit_start)
        (tmp_path / "frozen.yaml").write_text(FROZEN.replace("STAGES", str(stages)))
        folder = trained("run", "--config", str(tmp_path / "frozen.yaml"))
        prefix = "captioner.encoder."
        after = saved(folder)["state_dict"]
        return states[0], {name: after[prefix + name] for name in states[0]}

    return before_and_after


def test_nothing_of_a_frozen_encoder_moves(encoders: Any) -> None:
    before, after = encoders(0)
    torch.testing.assert_close(after, before, rtol=0, atol=0)


def test_the_last_stages_alone_are_trained_batch_norm_included(encoders: Any) -> None:
    before, after = encoders(1)
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert {name.split(".")[1] for name in moved} == {"18"}
    assert any(name.endswith("running_mean") for name in moved)


def test_a_checkpoint_holds_plain_values_and_all_that_captioning_needs(checkpoint: Path) -> None:
    content = torch.load(checkpoint, weights_only=True)
    config = content["captioner"]
    assert config["vocabulary"]
    assert config["preprocessing"] == {"class": "Preprocessing", "size": 32}
    assert config["encoder"]["backbone"] == "small"
    assert config["search"]["width"] == 2


def test_a_checkpoint_captions_where_there_are_no_training_data(
    trained: Train, tiny_config: Path, shapes_data: Path, tmp_path: Path
) -> None:
    data = shutil.copytree(shapes_data, tmp_path / "data")
    folder = trained("run", "--data.reader.init_args.root", str(data))
    photo = shutil.copy(next((data / "test").iterdir()), tmp_path / "photo.jpg")
    [caption] = load(folder / "best.ckpt").caption([photo])
    shutil.rmtree(data)
    (folder / "config.yaml").unlink()
    command = [sys.executable, "-m", "captioning", "caption", photo, "--json"]
    process = subprocess.run(
        [*command, "--model", str(folder / "best.ckpt"), "--device", "cpu"],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert json.loads(process.stdout)["caption"] == caption.text


def test_all_files_lie_in_the_folder_of_the_run(
    trained: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    folder = trained("run")
    assert not list(Path().iterdir())
    assert {path.name for path in folder.iterdir()} == {
        "best.ckpt",
        "config.yaml",
        "csv",
        "last.ckpt",
    }


def test_features_are_computed_once_and_used_by_the_next_training(
    trained: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    features = tmp_path / "features"
    frozen = ("--model.encoder.init_args.trainable_stages", "0", "--data.features", str(features))
    first = trained("a", *frozen)
    written = (features / "annotations.npy").stat().st_mtime_ns
    monkeypatch.setattr("captioning.data.preprocessing.read_reduced", None)  # no photo is read
    assert_same_training(first, trained("b", *frozen))
    assert (features / "annotations.npy").stat().st_mtime_ns == written


def test_every_epoch_leaves_a_line_of_scores_on_stderr(
    trained: Train, capsys: pytest.CaptureFixture[str]
) -> None:
    trained("run")
    out, err = capsys.readouterr()
    start, *epochs, best = err.splitlines()
    assert start.startswith("6 images to train on, 4 to validate")
    assert [line.split("  ")[0] for line in epochs] == ["epoch 1/3", "epoch 2/3", "epoch 3/3"]
    assert all("BLEU-4 0." in line for line in epochs)
    assert best.startswith("best val/BLEU-4: 0.")
    assert not out


def test_an_epoch_without_validation_shows_no_scores(
    trained: Train, capsys: pytest.CaptureFixture[str]
) -> None:
    trained("run", "--trainer.check_val_every_n_epoch", "2")
    _, *epochs, _ = capsys.readouterr().err.splitlines()
    assert ["BLEU" in line for line in epochs] == [False, True, False]


def test_the_csv_has_the_loss_and_the_scores(trained: Train) -> None:
    lines = (trained("run") / "csv/metrics.csv").read_text().splitlines()
    rows = list(csv.DictReader(lines))
    assert sum(bool(row["val/BLEU-4"]) for row in rows) == 3


def test_without_loggers_or_progress_bar_a_training_ends_all_the_same(trained: Train) -> None:
    options = ("--trainer.logger", "false", "--trainer.enable_progress_bar", "false")
    assert saved(trained("run", *options))["epoch"] == 2
