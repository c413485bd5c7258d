import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from captioning import files
from captioning.errors import InputError
from captioning.files import (
    made_folder,
    only_writer,
    read_json,
    remove_unfinished,
    text_of,
    write_json,
    written_whole,
)
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


def test_a_file_has_the_permissions_of_any_new_file(tmp_path: Path) -> None:
    write_json(tmp_path / "ours.json", 1)
    (tmp_path / "any.json").touch()
    assert (tmp_path / "ours.json").stat().st_mode == (tmp_path / "any.json").stat().st_mode


@pytest.mark.parametrize("name", ["file/page.txt", "folder", "/dev/full"])
def test_a_place_that_cannot_be_written_to_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match=name):
        write_json(tmp_path / name, 1)


def test_json_comes_back_as_it_was_written(tmp_path: Path) -> None:
    value = {"caption": "a café", "scores": [1, 0.5, None]}
    write_json(tmp_path / "value.json", value)
    text = (tmp_path / "value.json").read_text(encoding="utf-8")
    assert json.loads(text) == value
    assert "café" in text


def test_a_full_disk_keeps_the_old_file_and_is_named(tmp_path: Path) -> None:
    path = tmp_path / "page.txt"
    path.write_text("old")
    with (
        files_no_larger_than(1000),
        pytest.raises(InputError, match=r"page\.txt: cannot be written \(File too large\)"),
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


def test_the_target_of_a_link_is_replaced_and_not_the_link(tmp_path: Path) -> None:
    link = tmp_path / "link.json"
    link.symlink_to(tmp_path / "there" / "value.json")
    write_json(link, 1)
    assert link.is_symlink()
    assert (tmp_path / "there" / "value.json").read_text() == "1\n"


def test_what_killed_processes_left_of_a_file_is_removed(tmp_path: Path) -> None:
    kept = [tmp_path / name for name in ("last.ckpt", ".best.abcdefgh.ckpt", ".last.json")]
    for path in (*kept, tmp_path / ".last.abcdefgh.ckpt"):
        path.touch()
    remove_unfinished(tmp_path / "last.ckpt")
    assert sorted(tmp_path.iterdir()) == sorted(kept)


def test_a_folder_has_one_writer_until_it_ends_or_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = made_folder(tmp_path / "run")
    hold = f"""
import os, signal, sys
from captioning.files import only_writer

with only_writer({str(folder)!r}):
    print("held", flush=True)
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGKILL)
"""
    command = [sys.executable, "-c", hold]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        monkeypatch.setattr(files, "PATIENCE", 0.1)
        with pytest.raises(InputError, match="another process is writing"), only_writer(folder):
            pass
        process.communicate()
    assert process.returncode == -signal.SIGKILL
    with only_writer(folder):
        assert [path.name for path in folder.iterdir()] == [".lock"]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_json_may_begin_with_a_byte_order_mark(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "value.json").write_text('"é"', encoding=encoding)
    assert read_json(tmp_path / "value.json") == "é"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "Expecting value"),
        (b'{"images": [', "Expecting value"),
        (b"[" * 100_000, "brackets nested too deep"),
        (b"9" * 5_000, "4300 digits"),
        (b"\xff\xfe\x00", "not UTF-8 text; save it"),
    ],
    ids=["nothing", "half", "brackets", "digits", "bytes"],
)
def test_invalid_json_is_an_error_of_one_line(content: bytes, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "value.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=rf"value\.json: .*{reason}") as error:
        read_json(path)
    assert "\n" not in str(error.value)


def test_a_file_is_sized_before_it_is_read(tmp_path: Path) -> None:
    with (tmp_path / "sparse.json").open("wb") as file:
        file.truncate(2**42)  # four terabytes of nothing
    with pytest.raises(InputError, match=r"sparse\.json: more than 2,147,483,648 bytes"):
        read_json(tmp_path / "sparse.json")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("pipe", "not a regular file"),
        ("/dev/zero", "not a regular file"),
        (".", "not a regular file"),
        ("missing.json", "missing.json: no such file"),
        ("https://example.org/a.jpg", "an address, not a file"),
        ("a\0b", "null byte"),
    ],
)
def test_what_is_no_regular_file_is_refused_at_once(
    name: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    with pytest.raises(InputError, match=told):
        text_of(name)
