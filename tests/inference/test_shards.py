import json
from pathlib import Path

import pytest

from captioning.errors import InputError
from captioning.inference.bulk import Shards


@pytest.fixture
def shards(tmp_path: Path) -> Shards:
    return Shards(tmp_path, 2, {})


def lines(*names: str) -> list[str]:
    return [json.dumps({"image": name, "caption": "a dog"}) for name in names]


def test_names_that_are_not_utf8_give_valid_json(shards: Shards) -> None:
    name = "caf\udce9.jpg"
    shards.write(0, [json.dumps({"image": name}, ensure_ascii=False)])
    assert json.loads(shards.path(0).read_text())["image"] == name
    assert list(shards.lines(0)) == [(name, True)]


def test_a_shard_says_which_photos_have_a_caption(shards: Shards) -> None:
    shards.write(0, [*lines("a.jpg"), json.dumps({"image": "b.jpg", "error": "b.jpg: empty"})])
    assert list(shards.lines(0)) == [("a.jpg", True), ("b.jpg", False)]


@pytest.mark.parametrize("line", ['{"image": "a.j', "[]", '{"image": 3}', '{"caption": "a dog"}'])
def test_a_damaged_shard_is_named(shards: Shards, line: str) -> None:
    shards.write(0, [*lines("a.jpg"), line])
    with pytest.raises(
        InputError, match=r"captions-00000\.jsonl: line 2 is not of a photo; remove"
    ):
        list(shards.lines(0))
