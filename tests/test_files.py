import os
from pathlib import Path

import pytest

from captioning.errors import InputError
from captioning.files import read_json, write_json, written_whole


def test_a_file_appears_only_when_its_block_has_ended(tmp_path: Path) -> None:
    with written_whole(tmp_path / "page.txt") as temporary:
        temporary.write_text("whole")
        assert not (tmp_path / "page.txt").exists()
    assert (tmp_path / "page.txt").read_text() == "whole"


def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "page.txt").write_text("old")
    with pytest.raises(FileExistsError), written_whole(tmp_path / "page.txt") as temporary:
        temporary.mkdir()
    assert [path.name for path in tmp_path.iterdir()] == ["page.txt"]
    assert (tmp_path / "page.txt").read_text() == "old"


def test_the_temporary_file_has_the_suffix_by_which_writers_choose_a_format(
    tmp_path: Path,
) -> None:
    with written_whole(tmp_path / "picture.png") as temporary:
        assert temporary.suffix == ".png"


def test_missing_folders_are_made(tmp_path: Path) -> None:
    write_json(tmp_path / "a" / "b" / "value.json", 1)
    assert read_json(tmp_path / "a" / "b" / "value.json") == 1


def test_a_written_file_has_the_permissions_of_any_new_file(tmp_path: Path) -> None:
    write_json(tmp_path / "ours.json", 1)
    (tmp_path / "any.json").touch()
    assert (tmp_path / "ours.json").stat().st_mode == (tmp_path / "any.json").stat().st_mode


@pytest.mark.parametrize("name", ["file/page.txt", "folder"])
def test_a_place_that_cannot_be_written_to_is_named_in_one_line(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    with (
        pytest.raises(InputError, match=name) as error,
        written_whole(tmp_path / name) as temporary,
    ):
        temporary.write_text("")
    assert "\n" not in str(error.value)


def test_json_comes_back_as_it_was_written(tmp_path: Path) -> None:
    value = {"caption": "a café", "scores": [1, 0.5, None]}
    write_json(tmp_path / "value.json", value)
    assert read_json(tmp_path / "value.json") == value
    assert "café" in (tmp_path / "value.json").read_text(encoding="utf-8")


def test_json_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "value.json").write_text("[1]", encoding="utf-8-sig")
    assert read_json(tmp_path / "value.json") == [1]


@pytest.mark.parametrize(
    "content",
    [b"", b'{"images": [', b"\xff\xfe\x00", b"[" * 200_000],
    ids=["empty", "cut short", "no UTF-8", "nested without end"],
)
def test_what_is_no_json_is_named_in_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "value.json").write_bytes(content)
    with pytest.raises(InputError, match=r"value\.json: not a readable JSON file") as error:
        read_json(tmp_path / "value.json")
    assert "\n" not in str(error.value)


def test_a_missing_json_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"missing\.json: no such file"):
        read_json(tmp_path / "missing.json")


def test_writing_does_not_change_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_json(tmp_path / "value.json", 1)
        assert os.umask(0o027) == 0o027
        assert (tmp_path / "value.json").stat().st_mode & 0o777 == 0o640
    finally:
        os.umask(before)
