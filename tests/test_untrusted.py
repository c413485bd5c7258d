import os
from pathlib import Path

import pytest

from captioning.errors import InputError, PhotoError, reading, shown
from captioning.untrusted import read_json, text_of

BRACKETS = "[" * 100_000


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_json_may_begin_with_a_byte_order_mark(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "value.json").write_text('"é"', encoding=encoding)
    assert read_json(tmp_path / "value.json") == "é"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "Expecting value"),
        (b'{"images": [', "Expecting value"),
        (BRACKETS.encode(), "brackets nested too deep"),
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
        ("pipe", "a pipe or a device; give a regular file"),
        ("/dev/zero", "a pipe or a device"),
        (".", "a folder; give a regular file"),
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


def test_an_error_of_a_block_names_what_was_read() -> None:
    class LibraryError(Exception):
        pass

    for error in (ValueError("wrong"), OSError(5, "wrong"), LibraryError("wrong")):
        with pytest.raises(InputError, match=r"^table: wrong$"), reading("table", LibraryError):
            raise error
    with pytest.raises(ZeroDivisionError), reading("table"):
        raise ZeroDivisionError


def test_a_faulty_photo_is_matched_by_its_path_and_reason() -> None:
    match PhotoError("a.jpg", "cut short"):
        case PhotoError(path, reason):
            assert (path, reason) == ("a.jpg", "cut short")


def test_a_value_is_shown_in_one_short_line() -> None:
    assert shown("a\nb") == repr("a\nb")
    assert len(shown({"a": ["x" * 1000] * 1000})) <= 60
