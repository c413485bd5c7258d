from pathlib import Path

import pytest

from captioning import files
from captioning.errors import InputError, UsageError
from captioning.files import only_writer
from captioning.training.run_folder import RunFolder
from tests.training.conftest import Train, saved, with_scores

ONE, TWO = "--trainer.max_epochs=1", "--trainer.max_epochs=2"


@pytest.mark.parametrize("options", [(), ("--resume",)], ids=["new", "resumed"])
def test_a_best_checkpoint_without_a_last_one_is_never_lost(
    options: tuple[str, ...], train_into: Train, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    kept = {"best.ckpt": b"a model", "config.yaml": b"its settings"}
    for name, content in kept.items():
        (folder / name).write_bytes(content)
    with pytest.raises(InputError, match=r"best\.ckpt: cannot be resumed|earlier run.*--overwrite"):
        train_into("run", ONE, *options)
    assert {file.name: file.read_bytes() for file in folder.glob("[!.]*")} == kept


def test_a_resumed_training_whose_best_checkpoint_is_gone_keeps_the_best_of_its_own_epochs(
    train_into: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_scores(monkeypatch, 0.0, 0.3, 0.0, 0.1)
    (train_into("run", ONE) / "best.ckpt").unlink()
    assert saved(train_into("run", TWO, "--resume"), "best.ckpt")["epoch"] == 1


def test_a_training_whose_checkpoints_were_removed_does_not_name_them(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="checkpoints were removed"):
        RunFolder(tmp_path).result(has_validated=True, shows_progress=True)


def test_a_second_training_in_one_folder_is_refused_before_it_touches_a_file(
    train_into: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "PATIENCE", 0.1)
    (tmp_path / "run").mkdir()
    with (
        only_writer(tmp_path / "run"),
        pytest.raises(InputError, match="run: another process is writing there"),
    ):
        train_into("run", ONE, "--overwrite")
    assert [file.name for file in (tmp_path / "run").iterdir()] == [".lock"]


def test_resuming_a_training_that_has_ended_says_what_to_raise_and_writes_nothing(
    train_into: Train, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = train_into("run", TWO)
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    capsys.readouterr()
    for given in (ONE, TWO):
        train_into("run", given, "--resume")
        [line] = capsys.readouterr().err.splitlines()
        assert "nothing is left to train: it ended after epoch 2; to continue, raise trai" in line
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


def test_a_training_that_stopped_early_continues_with_more_patience_only(
    train_into: Train, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with_scores(monkeypatch, 0.0, 0.3, 0.2, 0.0, 0.1, 0.1)
    patience = "--early_stopping.patience"
    folder = train_into("run", patience, "1", "--trainer.max_epochs=9")
    assert "stopped after epoch 2: val/BLEU-4 has not improved on 0.3000 for 1" in (
        capsys.readouterr().err
    )
    train_into("run", patience, "1", "--trainer.max_epochs=9", "--resume")
    assert "stopped early after epoch 2; to continue, raise early_st" in capsys.readouterr().err
    train_into("run", patience, "3", "--trainer.max_epochs=9", "--resume")
    assert saved(folder)["epoch"] == 3


@pytest.mark.parametrize("scores", [(0.0, 0.0, 0.0), (2e-9, 3e-9, 1e-9)], ids=["exact", "BLEU's"])
def test_scores_of_0_stop_nothing_and_the_last_of_their_epochs_is_the_best(
    scores: tuple[float, ...],
    train_into: Train,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with_scores(monkeypatch, 0.0, *scores)
    folder = train_into("run", "--early_stopping.patience", "1")  # 3 epochs
    assert saved(folder, "best.ckpt")["epoch"] == saved(folder)["epoch"] == 2
    assert "best val/BLEU-4: 0.0000, as no caption resembles" in capsys.readouterr().err


def test_a_resumed_training_reports_changed_settings_and_refuses_those_without_effect(
    train_into: Train, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (train_into("run", ONE) / "config.yaml").read_bytes()
    for option in ("learning_rate=0.5", "weight_decay=0.5"):
        with pytest.raises(InputError, match=r"model\.\w+: resumed with 0\.5, begun with 0\.\d+"):
            train_into("run", TWO, f"--model.{option}", "--resume")
    capsys.readouterr()
    folder = train_into("run", TWO, "--data.batch_size=3", "--resume")
    lines = capsys.readouterr().err.splitlines()
    assert "resumed with another data.batch_size: 2 before, 3 now" in lines
    assert (folder / "config.yaml").read_bytes() != before


@pytest.mark.parametrize(
    "part",
    [
        "callbacks: [{class_path: ModelCheckpoint, init_args: {dirpath: OTHER, filename: best}}]",
        "callbacks: [{class_path: ModelCheckpoint, init_args: {filename: ../../other/best}}]",
        "logger: {class_path: CSVLogger, init_args: {save_dir: OTHER, name: '', version: csv}}",
        "logger: {class_path: CSVLogger, init_args: {save_dir: RUN, name: ../other}}",
    ],
)
def test_a_configuration_writes_into_no_other_run(
    part: str, train_into: Train, tmp_path: Path
) -> None:
    places = part.replace("OTHER", str(tmp_path / "other")).replace("RUN", str(tmp_path / "run"))
    (tmp_path / "delta.yaml").write_text(f"trainer: {{{places}}}")
    with pytest.raises(UsageError, match=r"outside of the run's folder"):
        train_into("run", "--config", str(tmp_path / "delta.yaml"))
    assert not (tmp_path / "other").exists()
