import platform
from pathlib import Path

import pytest

from captioning import allocation
from captioning.cli.program import main
from captioning.errors import UsageError
from captioning.training import train_cli


def test_other_libraries_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
    monkeypatch.setattr(allocation, "ctypes", None)
    allocation.keep_freed_memory()


def test_a_training_keeps_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[bool] = []
    monkeypatch.setattr(train_cli, "keep_freed_memory", lambda: kept.append(True))
    with pytest.raises(UsageError):
        train_cli.train(["--no_such_option=1"])
    assert kept == [True]


def test_a_search_of_the_command_line_keeps_memory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kept: list[bool] = []
    monkeypatch.setattr(allocation, "keep_freed_memory", lambda: kept.append(True))
    photo, model = tmp_path / "photo.jpg", tmp_path / "none.ckpt"
    photo.touch()
    assert main(["caption", str(photo), "--model", str(model)]) == 1
    assert kept == [True]
