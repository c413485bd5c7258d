import json
from pathlib import Path

import pytest
from PIL import Image

from captioning.data.data_module import CaptionData
from captioning.data.readers import CaptionTable, Joined
from captioning.errors import InputError


def table(folder: Path, *rows: tuple[str, str, str]) -> CaptionTable:
    """A data set of photos with these names, captions and splits."""
    folder.mkdir(parents=True)
    names = ("file_name", "caption", "split")
    lines = [json.dumps(dict(zip(names, row, strict=True))) for row in rows]
    (folder / "captions.jsonl").write_text("\n".join(lines))
    for name, _, _ in rows:
        Image.new("RGB", (8, 6)).save(folder / name)
    return CaptionTable(folder)


@pytest.fixture
def pets(tmp_path: Path) -> CaptionTable:
    return table(tmp_path / "pets", ("1.png", "a cat", "train"), ("2.png", "a dog", "val"))


@pytest.fixture
def birds(tmp_path: Path) -> CaptionTable:
    return table(tmp_path / "birds", ("1.png", "a gull", "train"), ("3.png", " ", "train"))


def test_each_split_has_the_images_of_all_data_sets_that_have_it(
    pets: CaptionTable, birds: CaptionTable
) -> None:
    joined = Joined([pets, birds])
    assert joined.splits == ("train", "val")
    assert [record.captions for record in joined.read("train")] == [("a cat",), ("a gull",)]
    assert [record.image for record in joined.read("val")] == [pets.read("val")[0].image]
    assert [problem.kind for problem in joined.contents("train").problems] == [
        "empty captions",
        "images without captions",
    ]


def test_equal_ids_of_different_data_sets_stay_apart(
    pets: CaptionTable, birds: CaptionTable
) -> None:
    first, second = Joined([pets, birds]).read("train")
    assert pets.read("train")[0].image_id == birds.read("train")[0].image_id
    assert str(first.image_id).startswith("pets/")
    assert str(second.image_id).startswith("birds/")


def test_folders_of_the_same_name_are_told_apart_by_their_paths(
    tmp_path: Path, pets: CaptionTable
) -> None:
    other = table(tmp_path / "others" / "pets", ("1.png", "a pony", "train"))
    ids = [record.image_id for record in Joined([pets, other]).read("train")]
    assert len(set(ids)) == 2


def test_one_vocabulary_has_the_words_of_all(pets: CaptionTable, birds: CaptionTable) -> None:
    data = CaptionData(Joined([pets, birds]), min_count=1)
    assert {"cat", "gull"} <= set(data.vocabulary.words)


def test_what_cannot_be_joined_is_named(pets: CaptionTable, birds: CaptionTable) -> None:
    with pytest.raises(InputError, match="no readers"):
        Joined([])
    with pytest.raises(InputError, match="pets is given 2 times"):
        Joined([pets, birds, pets])
    with pytest.raises(InputError, match=r"birds has no split 'test'; it has train, val"):
        Joined([pets, birds]).read("test")
