import contextlib
import csv
import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
import wandb
import yaml

from captioning.captioner import load
from captioning.errors import InputError
from captioning.training.configuration import allow_list
from captioning.training.configured_training import TrainCLI
from captioning.training.module import CaptioningModule
from captioning.training.train_cli import plain_messages, train
from tests.training.conftest import QUICK, Train, assert_same_training, saved, with_scores


@pytest.fixture(scope="module")
def run(tiny_config: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """The folder of a training of three epochs, and its lines on stderr; not to be changed."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    with contextlib.redirect_stderr(io.StringIO()) as err:
        train(["--config", str(tiny_config), "--trainer.default_root_dir", str(folder)])
    return folder, err.getvalue().splitlines()


def test_all_files_lie_in_the_folder_of_the_run(run: tuple[Path, list[str]]) -> None:
    assert {path.name for path in run[0].glob("[!.]*")} == {
        "best.ckpt",
        "config.yaml",
        "csv",
        "last.ckpt",
        "validation.html",
    }


def test_every_epoch_leaves_a_line_of_scores_on_stderr(run: tuple[Path, list[str]]) -> None:
    start, *epochs, best = run[1]
    assert start.startswith("6 images to train on, 4 to validate")
    assert [line.split("  ")[0] for line in epochs] == ["epoch 1/3", "epoch 2/3", "epoch 3/3"]
    assert all("BLEU-4 0." in line for line in epochs)
    assert best.startswith("best val/BLEU-4: 0.")


def test_the_csv_has_the_scores_of_every_epoch(run: tuple[Path, list[str]]) -> None:
    rows = list(csv.DictReader((run[0] / "csv/metrics.csv").read_text().splitlines()))
    assert sum(bool(row["val/BLEU-4"]) for row in rows) == 3


def test_a_checkpoint_holds_plain_values_and_all_that_captioning_needs(
    run: tuple[Path, list[str]],
) -> None:
    config = saved(run[0], "best.ckpt")["captioner"]
    assert config["vocabulary"]
    assert config["preprocessing"]["size"] == 32
    assert config["model"]["encoder"]["backbone"] == "small"
    assert config["search"]["width"] == 2


def test_the_saved_configuration_gives_the_same_run(
    run: tuple[Path, list[str]], tmp_path: Path
) -> None:
    config = ["--config", str(run[0] / "config.yaml")]
    train([*config, "--trainer.default_root_dir", str(tmp_path / "again"), "--overwrite", *QUICK])
    assert_same_training(run[0], tmp_path / "again")
    assert yaml.safe_load((tmp_path / "again/config.yaml").read_text())["overwrite"] is False


def test_an_earlier_run_is_not_written_over(run: tuple[Path, list[str]], tmp_path: Path) -> None:
    folder = shutil.copytree(run[0], tmp_path / "run")
    files = [folder / "last.ckpt", folder / "csv" / "metrics.csv"]
    before = [file.read_bytes() for file in files]
    again = ["--config", str(folder / "config.yaml")]
    again += ["--trainer.default_root_dir", str(folder)]
    with pytest.raises(InputError, match=r"contains an earlier run.*--resume.*--overwrite"):
        train(again)
    train([*again, "--trainer.fast_dev_run", "true", "--resume"])
    assert [file.read_bytes() for file in files] == before


def test_a_training_keeps_its_best_and_its_last_epoch_and_stops_when_there_is_no_hope(
    train_into: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_scores(monkeypatch, 0.0, 0.1, 0.3, 0.2, 0.1)
    folder = train_into("run", "--early_stopping.patience", "1", "--trainer.max_epochs", "9")
    assert saved(folder, "best.ckpt")["epoch"] == 1
    assert saved(folder)["epoch"] == 2


def test_a_second_configuration_changes_what_it_names(tiny_config: Path, tmp_path: Path) -> None:
    delta = tmp_path / "delta.yaml"
    delta.write_text("model: {decoder: {init_args: {hidden_dim: 12}}}")
    files = ["--config", str(tiny_config), "--config", str(delta)]
    with plain_messages():
        cli = TrainCLI([*files, "--trainer.fast_dev_run", "true"])
    arguments = cli.config.model.decoder.init_args
    assert (arguments.hidden_dim, arguments.embedding_dim) == (12, 8)


FROZEN = """
model:
  encoder:
    init_args: {backbone: mobilenet_v2, trainable_stages: STAGES}
"""


@pytest.mark.parametrize("stages", [0, 1])
def test_an_encoder_is_trained_in_its_last_stages_alone_batch_norm_included(
    stages: int, train_into: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before: dict[str, Any] = {}
    start = CaptioningModule.on_fit_start

    def on_fit_start(self: CaptioningModule) -> None:
        start(self)
        state = self.state_dict()
        before.update({name: state[name].clone() for name in state if "encoder." in name})

    monkeypatch.setattr(CaptioningModule, "on_fit_start", on_fit_start)
    (tmp_path / "frozen.yaml").write_text(FROZEN.replace("STAGES", str(stages)))
    folder = train_into("run", "--config", str(tmp_path / "frozen.yaml"), "--trainer.max_epochs=1")
    after = saved(folder)["state_dict"]
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert {name.partition("encoder.")[2].split(".")[1] for name in moved} == (
        {"18"} if stages else set()
    )
    assert any(name.endswith("running_mean") for name in moved) == bool(stages)


def test_features_are_computed_once_and_used_by_the_next_training(
    train_into: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    features = tmp_path / "features"
    frozen = ("--model.encoder.init_args.trainable_stages", "0", "--data.features", str(features))
    first = train_into("a", *frozen)
    written = (features / "features-00000.npy").stat().st_mtime_ns
    monkeypatch.setattr("captioning.data.preprocessing.read_photo", None)  # no photo is read
    assert_same_training(first, train_into("b", *frozen))
    assert (features / "features-00000.npy").stat().st_mtime_ns == written


@pytest.mark.integration
def test_an_epoch_without_validation_shows_no_scores(
    train_into: Train, capsys: pytest.CaptureFixture[str]
) -> None:
    train_into("run", "--trainer.check_val_every_n_epoch", "2")
    _, *epochs, _ = capsys.readouterr().err.splitlines()
    assert ["BLEU" in line for line in epochs] == [False, True, False]


def test_a_training_without_loggers_and_progress_may_end_before_its_first_validation(
    train_into: Train, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--trainer.logger", "false", "--trainer.enable_progress_bar", "false")
    assert saved(train_into("run", "--trainer.max_steps", "2", *options))["global_step"] == 2
    assert capsys.readouterr().err == ""


def test_a_training_that_has_not_validated_names_its_last_checkpoint(
    tiny_config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = ["--trainer.default_root_dir", str(tmp_path / "run"), "--trainer.logger", "false"]
    named = train(["--config", str(tiny_config), *place, "--trainer.max_steps", "2"])
    assert named == tmp_path / "run" / "last.ckpt"
    assert named.exists()
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
    assert "LOCAL_RANK" not in os.environ  # a later training would wait for its launcher


OURS: dict[str, dict[str, Any]] = {
    "callbacks.ExponentialAverage": {},
    "callbacks.NumberedSteps": {"seed": 0, "compile_after": -1},
    "callbacks.Progress": {},
    "callbacks.StopEarly": {"monitor": "val/CIDEr", "mode": "max"},
    "checkpoints.BestCheckpoint": {"monitor": "val/CIDEr"},
    "checkpoints.LastCheckpoint": {"path": "FOLDER/more.ckpt", "minutes": 0},
    "loggers.EveryStepOnce": {},
    "validation_grounding.ValidationGrounding": {"images": 1},
    "validation_images.ValidationImages": {"images": 1},
    "validation_images.ValidationPage": {"images": 1},
    "validation_images.ValidationTable": {"images": 1},
}
"""Our callbacks, which a configuration may name too, with their arguments."""


@pytest.mark.integration
def test_every_callback_of_ours_may_be_listed_unless_it_would_be_there_twice(
    train_into: Train, tmp_path: Path
) -> None:
    with allow_list(()) as allowed:
        found = {
            value.__module__.removeprefix("captioning.training.") + f".{value.__name__}"
            for module, _, name in (path.rpartition(".") for path in allowed)
            if issubclass(value := getattr(sys.modules[module], name), pl.Callback)
            and value.__module__.startswith("captioning.")
        }
    assert found == OURS.keys()
    listed = [
        {"class_path": f"captioning.training.{name}", "init_args": arguments}
        for name, arguments in OURS.items()
    ]
    delta = tmp_path / "delta.yaml"
    for part in listed[:-2] + listed[-1:], listed[-2:-1]:
        text = yaml.safe_dump({"trainer": {"callbacks": part}})
        delta.write_text(text.replace("FOLDER", str(tmp_path / "run")))
        given = ("run", "--config", str(delta), "--trainer.max_epochs", "1", "--overwrite")
        if len(part) == 1:
            with pytest.raises(InputError, match="more than one stateful callback"):
                train_into(*given)
        else:
            assert saved(train_into(*given), "more.ckpt")["epoch"] == 0


@pytest.mark.integration
def test_a_checkpoint_captions_where_there_are_no_training_data(
    train_into: Train, shapes_data: Path, tmp_path: Path
) -> None:
    data = shutil.copytree(shapes_data, tmp_path / "data")
    folder = train_into("run", "--data.reader.init_args.root", str(data))
    photo = shutil.copy(next((data / "test").iterdir()), tmp_path / "photo.jpg")
    [caption] = load(folder / "best.ckpt")([photo])
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


@pytest.mark.integration
def test_a_run_may_lie_in_a_folder_whose_name_is_not_utf8(train_into: Train) -> None:
    assert saved(train_into("run \udce9", "--trainer.max_epochs", "1"))["epoch"] == 0
