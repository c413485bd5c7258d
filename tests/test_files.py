import json
import os
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from captioning import files
from captioning.errors import InputError, as_input_error
from captioning.files import (
    all_kept,
    forget_written,
    made_folder,
    only_writer,
    remove_unfinished,
    write_json,
    written_whole,
)
from captioning.untrusted import read_json
from tests.conftest import files_no_larger_than


def test_a_file_appears_only_when_its_block_has_ended(tmp_path: Path) -> None:
    with written_whole(tmp_path / "page.txt") as temporary:
        temporary.write_text("whole")
        assert not (tmp_path / "page.txt").exists()
    assert (tmp_path / "page.txt").read_text() == "whole"


def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "page.txt").write_text("old")
    with pytest.raises(UnicodeEncodeError), written_whole(tmp_path / "page.txt") as temporary:
        temporary.write_text("half of it, and \udcff", encoding="utf-8")
    assert [path.name for path in tmp_path.iterdir()] == ["page.txt"]
    assert (tmp_path / "page.txt").read_text() == "old"


def test_a_written_file_has_the_permissions_of_any_new_file(tmp_path: Path) -> None:
    write_json(tmp_path / "ours.json", 1)
    (tmp_path / "any.json").touch()
    assert (tmp_path / "ours.json").stat().st_mode == (tmp_path / "any.json").stat().st_mode


@pytest.mark.parametrize("name", ["file/page.txt", "folder"])
def test_a_place_that_cannot_be_written_to_is_named_in_one_line(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    with (
        pytest.raises(InputError, match=name),
        written_whole(tmp_path / name) as temporary,
    ):
        temporary.write_text("")


def test_files_that_others_remove_meanwhile_are_named(tmp_path: Path) -> None:
    folder = tmp_path / "out"

    def write_amid_removal() -> None:
        with all_kept():
            write_json(folder / "one.json", 1)
            write_json(folder / "two.json", 2)
            shutil.rmtree(folder)
            write_json(folder / "three.json", 3)

    with pytest.raises(InputError, match=r"one\.json: removed .* with 1 more"):
        write_amid_removal()


def test_files_may_be_replaced_or_forgotten(tmp_path: Path) -> None:
    with all_kept():
        for name in ("one", "one", "two"):
            write_json(tmp_path / f"{name}.json", name)
        (tmp_path / "two.json").unlink()
        forget_written(tmp_path / "two.json")
    write_json(tmp_path / "three.json", "outside of the block")
    (tmp_path / "three.json").unlink()


def test_json_comes_back_as_it_was_written(tmp_path: Path) -> None:
    value = {"caption": "a café", "scores": [1, 0.5, None]}
    write_json(tmp_path / "value.json", value)
    assert read_json(tmp_path / "value.json") == value
    assert "café" in (tmp_path / "value.json").read_text(encoding="utf-8")


def test_a_disk_that_is_full_keeps_the_old_file_and_is_named_in_one_line(
    tmp_path: Path,
) -> None:
    path = tmp_path / "page.txt"
    path.write_text("old")
    with (
        files_no_larger_than(1000),
        pytest.raises(InputError, match=r"page\.txt: cannot be written \(File too large\); \w+"),
        written_whole(path) as temporary,
    ):
        temporary.write_text("new" * 1000)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_an_error_of_another_file_is_not_blamed_on_this_one(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), written_whole(tmp_path / "page.txt"):
        (tmp_path / "source.txt").read_text()


def test_a_pipe_is_written_to_and_stays_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor() as threads:
        read = threads.submit(pipe.read_text)
        write_json(pipe, [1])
        assert json.loads(read.result(timeout=60)) == [1]
    assert pipe.is_fifo()
    assert list(tmp_path.iterdir()) == [pipe]


def test_a_pipe_that_nobody_reads_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.setattr(files, "PATIENCE", 0.1)
    with pytest.raises(InputError, match=r"pipe: cannot be written .*; let a program read from it"):
        write_json(tmp_path / "pipe", [1])


def test_a_full_device_is_named_and_stays_a_device() -> None:
    with pytest.raises(InputError, match="/dev/full: cannot be written"):
        write_json("/dev/full", [1])
    assert Path("/dev/full").is_char_device()


def test_the_target_of_a_link_is_replaced_and_not_the_link(tmp_path: Path) -> None:
    link = tmp_path / "link.json"
    link.symlink_to(tmp_path / "there" / "value.json")
    write_json(link, 1)
    assert link.is_symlink()
    assert read_json(tmp_path / "there" / "value.json") == 1


def test_a_name_of_the_greatest_length_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / f"{'n' * 250}.json"
    write_json(path, 1)
    assert read_json(path) == 1


def test_what_killed_processes_left_of_a_file_is_removed_and_nothing_else(tmp_path: Path) -> None:
    kept = [tmp_path / name for name in ("last.ckpt", ".best.abcdefgh.ckpt", ".last.json")]
    for path in (*kept, tmp_path / ".last.abcdefgh.ckpt"):
        path.touch()
    remove_unfinished(tmp_path / "last.ckpt")
    assert sorted(tmp_path.iterdir()) == sorted(kept)


def test_a_folder_is_free_again_when_the_process_that_held_it_is_killed(tmp_path: Path) -> None:
    hold = f"""
import os, signal
from captioning.files import only_writer

with only_writer({str(tmp_path)!r}):
    os.kill(os.getpid(), signal.SIGKILL)
"""
    process = subprocess.run([sys.executable, "-c", hold], check=False)
    assert process.returncode == -signal.SIGKILL
    with only_writer(tmp_path):
        assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("s3://bucket/run", "^s3://bucket/run.*: an address"),
        ("~/run", "^~/run.*: ~ is not expanded here"),
    ],
)
def test_addresses_and_home_folders_make_no_folders_of_odd_names(
    path: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=told):
        made_folder(path)
    with pytest.raises(InputError, match=told), written_whole(f"{path}/file"):
        pass
    assert not list(tmp_path.iterdir())


def test_a_copy_that_fails_on_a_full_disk_names_where_it_was_written_to(tmp_path: Path) -> None:
    (tmp_path / "from").write_bytes(bytes(100_000))
    with files_no_larger_than(1000), pytest.raises(OSError, match="too large") as error:
        shutil.copyfile(tmp_path / "from", tmp_path / "to")
    assert str(as_input_error(error.value)).startswith(f"{tmp_path}/to: File too large")
