import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from captioning.data.references import read_references
from captioning.data.results import read_results
from captioning.errors import InputError
from captioning.evaluation.grounding.lexicon import Lexicon
from captioning.training.configuration import bounded_yaml
from captioning.untrusted import MAX_DIGITS, MAX_YAML_VALUES, json_of, read_json, text_of

BRACKETS = "[" * 100_000
BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{last}'] * 9)}]\n"
    for last, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_json_may_begin_with_a_byte_order_mark(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "value.json").write_text('"é"', encoding=encoding)
    assert read_json(tmp_path / "value.json") == "é"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "Expecting value"),
        ('{"images": [', "Expecting value"),
        (BRACKETS, "brackets nested too deep"),
        (BRACKETS.replace("[", '{"a":'), "brackets nested too deep"),
        ("9" * 5_000, "a number of 5,000 digits"),
        ("-" + "9" * (MAX_DIGITS + 1), "a number of 102 digits"),
        ("[NaN]", "NaN is not a JSON number"),
        ("[-Infinity]", "-Infinity is not a JSON number"),
    ],
    ids=lambda value: value[:20],
)
def test_invalid_json_is_an_error_of_one_line(content: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "value.json"
    path.write_text(content)
    with pytest.raises(InputError, match=r"value\.json: not a readable JSON file") as error:
        read_json(path)
    assert reason in str(error.value)


def test_json_that_is_no_utf_8_says_how_to_save_it(tmp_path: Path) -> None:
    (tmp_path / "value.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match=r"value\.json: not UTF-8 text; save it"):
        read_json(tmp_path / "value.json")


def test_a_nan_in_json_is_shown_with_its_place() -> None:
    text = '[{"caption": "NaN"},\n {"image_id": 5, "caption": NaN}]'
    with pytest.raises(
        ValueError, match=r'NaN is .*: line 2 column 29, after .*"caption":'
    ) as caught:
        json_of(text)
    assert "\n" not in str(caught.value)


def test_whole_numbers_of_json_fit_into_floats() -> None:
    assert float(json_of("9" * MAX_DIGITS)) < float("inf")


def test_of_a_key_that_an_object_has_twice_the_last_value_counts() -> None:
    assert json_of('{"a": 1, "a": 2}') == {"a": 2}


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"missing\.json: no such file"):
        read_json(tmp_path / "missing.json")


def test_a_file_is_sized_before_it_is_read(tmp_path: Path) -> None:
    with (tmp_path / "sparse.json").open("wb") as file:
        file.truncate(2**42)  # four terabytes of nothing
    with pytest.raises(InputError, match=r"sparse\.json: more than 2,147,483,648 bytes"):
        read_json(tmp_path / "sparse.json")


@pytest.mark.parametrize("name", ["pipe", "/dev/zero", "/dev/null", ".", "a\0b", "a" * 300])
def test_what_is_no_regular_file_is_refused_at_once(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    with pytest.raises(InputError) as error:
        text_of(name)
    assert "\0" not in str(error.value)


@pytest.mark.parametrize("read", [read_results, read_references, Lexicon.load])
@pytest.mark.parametrize(
    "content", [BRACKETS, "9" * 5_000, "[" * 500 + "]" * 500, "[[], NaN]", '{"": {"": 1}}', "1e999"]
)
def test_hostile_json_of_every_kind_of_file_is_one_line(
    read: Any, content: str, tmp_path: Path
) -> None:
    (tmp_path / "value.json").write_text(content)
    with pytest.raises(InputError, match=r"value\.json") as error:
        read(tmp_path / "value.json")
    assert len(str(error.value)) < 600


def test_all_captions_of_one_image_are_gathered_however_many(tmp_path: Path) -> None:
    count = 10_000
    entries = ",".join(['{"image_id": 1, "caption": "a dog"}'] * count)
    (tmp_path / "many.json").write_text(f'{{"annotations": [{entries}]}}')
    assert len(read_references(tmp_path / "many.json").captions[1]) == count


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (BOMB, f"more than {MAX_YAML_VALUES:,} values"),
        ("a: &a [*a]", "stands for nothing, or for itself"),
        ("a: &a {<<: *a}", "stands for nothing, or for itself"),
        ("a: *b", "stands for nothing, or for itself"),
        ("a: " + BRACKETS, "nest(ed|ing) de"),
        ("- " * 10_000, "nest(ed|ing) de"),
        ("a: " + "9" * 5_000, "thousands of digits"),
        ("a: !!timestamp 2020-13-45", "month must be in 1..12"),
        ("a: !!python/object/apply:os.getcwd []", "could not determine a constructor"),
        ("2.5: a", "the key 2.5 is not text"),
        ("? {a: 1}\n: 1", "unhashable key"),
        ("a: '" + "x" * 2**20 + "'", "more than 1,048,576 characters"),
    ],
    ids=lambda value: value[:30],
)
def test_hostile_yaml_is_refused(text: str, reason: str) -> None:
    with pytest.raises(yaml.YAMLError, match=reason):
        bounded_yaml(text)


def test_plain_anchors_merges_and_dates_are_read() -> None:
    text = "a: &a {x: 1e-3, y: 2020-13-45}\nb: {<<: *a, x: 2}\nc: [*a, *a]\n"
    first = {"x": 0.001, "y": "2020-13-45"}
    assert bounded_yaml(text) == {"a": first, "b": {**first, "x": 2}, "c": [first, first]}


def test_an_address_is_told_from_a_missing_file_and_keeps_both_its_slashes() -> None:
    with pytest.raises(InputError, match=r"^https://example\.org/a\.jpg: an address"):
        text_of(Path("https://example.org/a.jpg"))
    with pytest.raises(InputError, match=r"^a:b\.jpg: no such file"):
        text_of("a:b.jpg")
