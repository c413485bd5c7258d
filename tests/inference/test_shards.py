import itertools
import json
from pathlib import Path

import pytest

from captioning.errors import InputError
from captioning.inference.shards import Shards


@pytest.fixture
def shards(tmp_path: Path) -> Shards:
    return Shards(tmp_path, 2, {})


def lines(*names: str) -> list[str]:
    return [json.dumps({"image": name, "caption": "a dog"}) for name in names]


def test_the_place_of_a_photo_decides_its_shard_also_in_an_endless_stream(shards: Shards) -> None:
    photos = (Path(f"{number}.jpg") for number in itertools.count())
    first = list(itertools.islice(shards.cut(photos), 2))
    assert first == [(0, [Path("0.jpg"), Path("1.jpg")]), (1, [Path("2.jpg"), Path("3.jpg")])]


def test_a_shard_holds_a_line_per_photo(shards: Shards) -> None:
    shards.write(3, lines("a.jpg", "b.jpg"))
    assert shards.path(3).name == "captions-00003.jsonl"
    assert shards.path(3).read_text().splitlines() == lines("a.jpg", "b.jpg")
    assert shards.numbers() == [3]


def test_names_that_are_not_utf8_give_valid_json(shards: Shards) -> None:
    name = "caf\udce9.jpg"
    shards.write(0, [json.dumps({"image": name}, ensure_ascii=False)])
    assert json.loads(shards.path(0).read_text())["image"] == name
    assert shards.unreadable(0, [Path(name)]) == 0


def test_photos_without_a_caption_are_counted(shards: Shards) -> None:
    shards.write(0, [*lines("a.jpg"), json.dumps({"image": "b.jpg", "error": "b.jpg: empty"})])
    assert shards.unreadable(0, [Path("a.jpg"), Path("b.jpg")]) == 1


@pytest.mark.parametrize(
    ("photos", "expected"),
    [
        (["a.jpg", "c.jpg"], "line 2 is not of c.jpg"),
        (["a.jpg"], "line 2 should not be there"),
        (["a.jpg", "b.jpg", "c.jpg"], "line 3 is not of c.jpg"),
    ],
    ids=["another", "fewer", "more"],
)
def test_a_shard_of_other_photos_is_named(shards: Shards, photos: list[str], expected: str) -> None:
    shards.write(0, lines("a.jpg", "b.jpg"))
    with pytest.raises(InputError, match=f"captions-00000.jsonl: {expected}.*remove the file"):
        shards.unreadable(0, [Path(name) for name in photos])


def test_a_damaged_shard_is_named(shards: Shards) -> None:
    shards.write(0, ['{"image": "a.j', "[]"])
    with pytest.raises(InputError, match=r"line 1 is not of a\.jpg"):
        shards.unreadable(0, [Path("a.jpg"), Path("b.jpg")])
