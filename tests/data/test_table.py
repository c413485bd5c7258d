from pathlib import Path

import pytest

from captioning.data.readers import CaptionTable, Reader
from captioning.errors import InputError
from tests.data.conftest import write


def captions_of(reader: Reader) -> dict[str, dict[int | str, tuple[str, ...]]]:
    return {
        split: {record.image_id: record.captions for record in reader.read(split)}
        for split in reader.splits
    }


def table_of(path: Path, count: int) -> CaptionTable:
    write(path, "file_name,caption\n" + "".join(f"{i}.jpg,photo\n" for i in range(count)))
    return CaptionTable(path, val_fraction=0.2)


def test_photos_without_a_split_column_keep_their_split_when_others_are_added(
    tmp_path: Path,
) -> None:
    few, many = (captions_of(table_of(tmp_path / "a.csv", count)) for count in (500, 1000))
    assert 70 <= len(few["val"]) <= 130
    assert few["val"].keys() <= many["val"].keys()
    assert few["train"].keys() <= many["train"].keys()


def test_two_photos_are_enough_for_train_and_val(tmp_path: Path) -> None:
    assert table_of(tmp_path / "a.csv", 2).splits == ("train", "val")


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("captions.csv", "when,caption\n1999,b\n", "no column of photos; its columns are when, ca"),
        ("captions.csv", "file_name,text,raw\na.jpg,b,c\n", "clearly .* are file_name, text, raw;"),
        ("captions.csv", "", "no captions; add rows"),
        ("captions.csv", "file_name,caption\na.jpg,b\na.jpg,c, d\n", "line 3"),
        ("captions.csv", "file_name,caption\na.jpg\n", "line 2"),
        ("captions.csv", "file_name,caption\n,a dog\n", "line 2 has an empty file_name"),
        ("captions.csv", 'file_name,caption\na.jpg,"a dog\n', "line 2 is not CSV"),
        ("captions.csv", 'file_name,caption\na.jpg,b\na.jpg,"b" c\n', "line 3 is not CSV"),
        ("captions.csv", "file_name,caption\n", "no captions; add rows"),
        ("captions.csv", "file_name,caption,split\na.jpg,a,\n", "line 2 has an empty split"),
        ("captions.jsonl", '{"file_name": "a.jpg", "caption": "b"}\n{"file', "line 2 is not JSON"),
        ("captions.jsonl", '{"file_name": "a.jpg"}', "no column is clearly that of the captions"),
        (
            "captions.jsonl",
            '{"file_name": "a", "caption": "b"}\n{"file_name": "c"}',
            "line 2: .* has no",
        ),
        ("captions.jsonl", '{"file_name": "a.jpg", "caption": 3}', "line 1: 'caption' is 3, not"),
        ("captions.jsonl", "[1, 2]", "line 1: .* is not an object"),
        ("captions.jsonl", "[" * 100_000, "line 1 is not JSON .brackets nested too deep"),
        ("captions.jsonl", "9" * 5_000, "line 1 is not JSON .a number of 5,000 digits"),
        ("captions.csv", "file_name,caption\na.jpg," + "b" * 200_000, "is not CSV .field larger"),
    ],
)
def test_a_malformed_table_is_one_line(tmp_path: Path, name: str, text: str, expected: str) -> None:
    write(tmp_path / name, text)
    with pytest.raises(InputError, match=f"{name}.*{expected}"):
        CaptionTable(tmp_path).read("train")


def test_a_table_that_is_not_utf_8_says_how_to_save_it(tmp_path: Path) -> None:
    (tmp_path / "captions.csv").write_bytes("file_name,caption\na.jpg,café\n".encode("latin-1"))
    with pytest.raises(InputError, match=r"captions\.csv: not UTF-8 text; save it"):
        CaptionTable(tmp_path).read("train")


@pytest.mark.parametrize("fraction", [-0.1, 1.0])
def test_a_validation_share_out_of_range_is_an_error(tmp_path: Path, fraction: float) -> None:
    with pytest.raises(InputError, match="val_fraction: give a number from 0 to below 1"):
        CaptionTable(tmp_path, val_fraction=fraction)
