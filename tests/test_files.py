"""Files are written whole or not at all; what is read from anywhere is sized and named."""

import os
from pathlib import Path

import pytest

from captioning.errors import InputError
from captioning.files import read_json, read_text, remove_unfinished, write_json, written_whole


def test_a_file_appears_only_when_its_block_has_ended(tmp_path: Path) -> None:
    with written_whole(tmp_path / "page.txt") as temporary:
        temporary.write_text("whole")
        assert not (tmp_path / "page.txt").exists()
    assert (tmp_path / "page.txt").read_text() == "whole"
    with pytest.raises(UnicodeEncodeError), written_whole(tmp_path / "page.txt") as temporary:
        temporary.write_text("half of it, and \udcff", encoding="utf-8")
    assert [path.name for path in tmp_path.iterdir()] == ["page.txt"]
    assert (tmp_path / "page.txt").read_text() == "whole"
    (tmp_path / "any.txt").touch()
    assert (tmp_path / "page.txt").stat().st_mode == (tmp_path / "any.txt").stat().st_mode


@pytest.mark.parametrize("name", ["file/page.txt", "folder", "/dev/null"])
def test_a_place_that_cannot_be_written_to_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match=name):
        write_json(tmp_path / name, 1)


def test_an_error_of_another_file_is_not_blamed_on_this_one(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), written_whole(tmp_path / "page.txt"):
        (tmp_path / "source.txt").read_text()


def test_a_link_is_replaced_and_its_target_is_not(tmp_path: Path) -> None:
    link, target = tmp_path / "link.json", tmp_path / "elsewhere.json"
    target.write_text("theirs")
    link.symlink_to(target)
    write_json(link, 1)
    assert not link.is_symlink()
    assert (read_json(link), target.read_text()) == (1, "theirs")


def test_what_killed_processes_left_of_a_file_is_removed(tmp_path: Path) -> None:
    kept = [tmp_path / name for name in ("last.ckpt", ".best.abcdefgh.ckpt", ".last.json")]
    for path in (*kept, tmp_path / ".last.abcdefgh.ckpt"):
        path.touch()
    remove_unfinished(tmp_path / "last.ckpt")
    assert sorted(tmp_path.iterdir()) == sorted(kept)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_json_may_begin_with_a_byte_order_mark(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "value.json").write_text('"é"', encoding=encoding)
    assert read_json(tmp_path / "value.json") == "é"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b'{"images": [', "Expecting value"),
        (b"[" * 100_000, "maximum recursion depth exceeded"),
        (b"9" * 5_000, "4300 digits"),
        (b"\xff\xfe\x00", "not UTF-8 text; save it"),
    ],
    ids=["half", "brackets", "digits", "bytes"],
)
def test_invalid_json_is_an_error_of_one_line(content: bytes, reason: str, tmp_path: Path) -> None:
    (tmp_path / "value.json").write_bytes(content)
    with pytest.raises(InputError, match=rf"value\.json: .*{reason}"):
        read_json(tmp_path / "value.json")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("pipe", "not a regular file"),
        (".", "not a regular file"),
        ("missing.json", "missing.json: no such file"),
        ("https://example.org/a.jpg", "an address, not a file"),
        ("file:///home/a.jpg", "file:///home/a.jpg: an address; give the path"),
        ("data:image/png;base64,iVBORw0KGgo=", "data:image/.*: text, not a path; decode it"),
        (
            "iVBORw0KGgo" * 1000,
            r"^iVBORw.{34}\.\.\.: name too long; if it is a photo as text, decode it",
        ),
        ("a\0b", "null byte"),
        ("sparse.json", r"sparse\.json: more than 2,147,483,648 bytes"),
    ],
)
def test_what_is_no_regular_file_is_refused_at_once(
    name: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    with Path("sparse.json").open("wb") as file:
        file.truncate(2**42)  # four terabytes of nothing
    with pytest.raises(InputError, match=told):
        read_text(name)
