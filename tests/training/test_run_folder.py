from pathlib import Path

import pytest

from captioning import files
from captioning.errors import InputError
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
    with pytest.raises(InputError, match=r"best\.ckpt|earlier run.*--overwrite"):
        train_into("run", ONE, *options)
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == kept


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
    assert not list((tmp_path / "run").iterdir())
