import csv
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from captioning.captioner import load
from captioning.errors import InputError
from captioning.training.module import CaptioningModule
from captioning.training.train_cli import train
from tests.training.conftest import Train, assert_same_training, saved, with_scores


def test_the_same_seed_gives_the_same_parameters(trained: Train) -> None:
    assert_same_training(trained("a"), trained("b"))


def test_another_seed_gives_other_parameters(trained: Train) -> None:
    first, second = saved(trained("a")), saved(trained("b", "--seed_everything", "1"))
    name = "captioner.decoder.output.weight"
    assert not torch.equal(first["state_dict"][name], second["state_dict"][name])


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


def test_training_stops_when_the_score_no_longer_rises(
    trained: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_scores(monkeypatch, 0.0, 0.3, 0.2, 0.1)
    folder = trained("run", "--early_stopping.patience", "1", "--trainer.max_epochs", "9")
    assert saved(folder)["epoch"] == 1


def test_an_earlier_run_is_not_written_over(trained: Train) -> None:
    folder = trained("run")
    files = [folder / "last.ckpt", folder / "csv" / "metrics.csv"]
    before = [file.read_bytes() for file in files]
    with pytest.raises(InputError, match=r"run: holds an earlier run.*--resume.*--overwrite"):
        trained("run")
    for options in ((), ("--resume",)):
        trained("run", "--trainer.fast_dev_run", "true", *options)
        assert [file.read_bytes() for file in files] == before


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
    assert config["preprocessing"] == {
        "class": "captioning.data.preprocessing.Preprocessing",
        "size": 32,
    }
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
        "validation.html",
    }


def test_features_are_computed_once_and_used_by_the_next_training(
    trained: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    features = tmp_path / "features"
    frozen = ("--model.encoder.init_args.trainable_stages", "0", "--data.features", str(features))
    # Both of which look at photos.
    frozen += ("--validation_page.images", "0", "--validation_grounding.images", "0")
    first = trained("a", *frozen)
    written = (features / "features-00000.npy").stat().st_mtime_ns
    monkeypatch.setattr("captioning.data.preprocessing.read_photo", None)  # no photo is read
    assert_same_training(first, trained("b", *frozen))
    assert (features / "features-00000.npy").stat().st_mtime_ns == written


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


def test_a_training_may_end_before_its_first_validation(trained: Train) -> None:
    assert saved(trained("run", "--trainer.max_steps", "2"))["global_step"] == 2


def test_a_run_may_lie_in_a_folder_whose_name_is_no_utf8(trained: Train) -> None:
    assert saved(trained("run \udce9", "--trainer.max_epochs", "1"))["epoch"] == 0
