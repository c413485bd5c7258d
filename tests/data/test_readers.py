"""What readers make of their files, whole and damaged."""

import json
from pathlib import Path
from typing import Any

import pytest

from captioning.data.data_module import CaptionData
from captioning.data.readers import CaptionTable, Coco, Joined, reader_for
from captioning.data.references import read_references
from captioning.errors import InputError
from tests.data.conftest import coco_captions, draw, write
from tests.data.test_layouts import karpathy


def instances(**changes: Any) -> dict[str, Any]:
    box = {"id": 5, "image_id": 1, "category_id": 9, "bbox": [1, 2, 3, 4.5], "iscrowd": 0}
    faulty = {**box, **changes}
    return {
        "categories": [{"id": 9, "name": "cat"}],
        "annotations": [*([faulty] if changes else ()), {**box, "segmentation": [[1, 2, 4, 2]]}],
    }


@pytest.fixture
def coco(tmp_path: Path) -> Path:
    write(
        tmp_path / "annotations/captions_train2017.json",
        coco_captions((1, "a cat"), (2, "a dog"), (1, "one cat"), images=(2, 1, 3)),
    )
    write(tmp_path / "annotations/captions_val2017.json", coco_captions((1, "a bird")))
    draw(tmp_path, "train2017/1.jpg", "train2017/2.jpg", "train2017/3.jpg", "val2017/1.jpg")
    return tmp_path


def test_coco_gathers_captions_boxes_and_masks(coco: Path) -> None:
    write(coco / "annotations/instances_train2017.json", instances())
    reader = reader_for(coco)
    assert isinstance(reader, Coco)
    second, first = reader.read().records("train")
    assert (second.image_id, second.captions) == (2, ("a dog",))
    assert (first.image_id, first.captions) == (1, ("a cat", "one cat"))
    assert first.image == coco / "train2017/1.jpg"
    [found] = first.objects
    assert (found.name, found.box, found.mask) == ("cat", (1, 2, 3, 4.5), [[1, 2, 4, 2]])
    assert second.objects == ()
    assert not any(record.objects for record in Coco(coco, objects=False).read().records("train"))


def test_coco_s_parts_may_lie_elsewhere(coco: Path, tmp_path: Path) -> None:
    write(coco / "annotations/captions_train2014.json", coco_captions((1, "a cat")))
    assert list(Coco(coco).read().splits) == ["val", "train2014", "train2017"]
    assert list(Coco(coco, year=2017).read().splits) == ["train", "val"]
    (coco / "annotations").rename(coco / "json")
    (coco / "val2017").rename(tmp_path / "moved")
    draw(tmp_path / "disk", "val2017/1.jpg")
    reader = Coco(coco, images=tmp_path / "disk", annotations=coco / "json")
    assert reader.read().records("val")[0].image == tmp_path / "disk/val2017/1.jpg"
    (tmp_path / "disk/val2017/1.jpg").unlink()
    with pytest.raises(InputError, match=r"captions_val2017\.json: none of its .* is in .*disk"):
        reader.read().records("val")


@pytest.mark.parametrize(("listed", "used"), [("7", 7), (7, "7"), ("000000000007", 7)])
def test_ids_match_whether_numbers_or_text(tmp_path: Path, listed: Any, used: Any) -> None:
    images = [{"id": listed, "file_name": "7.jpg"}]
    said = [{"image_id": used, "caption": "a dog"}]
    write(tmp_path / "annotations/captions_val.json", {"images": images, "annotations": said})
    write(tmp_path / "annotations/instances_val.json", instances(image_id=used))
    draw(tmp_path, "val/7.jpg")
    data_set = Coco(tmp_path).read()
    assert data_set.problems == []
    [record] = data_set.records("val")
    assert (record.image_id, record.captions, len(record.objects)) == (listed, ("a dog",), 1)


ROW = {"image": "b.jpg", "caption": "x"}
COCO = coco_captions((1, "a dog"))
MALFORMED: dict[str, tuple[str, str, list[Any]]] = {
    "captions.csv": (
        "file_name,caption\n0.jpg,a dog\n{}\n",
        "line 3",
        ["b.jpg,c, d", "b.jpg", ",a dog", 'b.jpg,"b" c', "b.jpg," + "b" * 200_000]
        + [f"b.jpg,{texts}" for texts in ("['a' 'b']", r"['\x']", "['a]", "['" + "\\" * 9_999)],
    ),
    "captions.jsonl": (
        '{"image": "0.jpg", "caption": "a dog"}\n{}\n',
        "line 2",
        ['{"file', {"image": "b.jpg"}, [1, 2], "[" * 100_000, "9" * 5_000]
        + [ROW | {"caption": text} for text in (3, [3], {"tokens": ["a"]})],
    ),
    "mine.json": (
        '[{"image": "0.jpg", "caption": "a dog"}, {}]',
        "row 2",
        [7, {}, ROW | {"caption": None}, ROW | {"image": 3}],
    ),
    "Flickr8k.token.txt": ("0.jpg#0\ta dog\n{}", "line 2", ["b.jpg A cat ."]),
    "dataset_coco.json": (
        json.dumps({"images": [karpathy("val", 0), None]}).replace("null", "{}"),
        "image 2",
        [7, {}, karpathy("val", 1, sentences=[{}]), {"split": "val"}],
    ),
    "annotations/captions_val.json": (
        json.dumps(COCO | {"annotations": [*COCO["annotations"], None]}).replace("null", "{}"),
        "annotation 2",
        [7, {}, {"image_id": 1}, {"image_id": [1], "caption": "x"}],
    ),
}


@pytest.mark.parametrize(
    ("name", "row"), [(name, row) for name, (_, _, rows) in MALFORMED.items() for row in rows]
)
def test_a_malformed_row_is_named_and_the_others_are_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, row: Any
) -> None:
    draw(tmp_path, "0.jpg", "val/1.jpg")
    before, _, after = MALFORMED[name][0].rpartition("{}")
    write(tmp_path / name, before + (row if isinstance(row, str) else json.dumps(row)) + after)
    reader = reader_for(tmp_path if "/" in name else tmp_path / name)
    data_set = reader.read()
    [problem] = data_set.problems
    assert problem.name.startswith(f"{tmp_path / name}: {MALFORMED[name][1]}: ")
    assert len(problem.name) < 400
    [split] = data_set.splits
    assert len(data_set.records(split)) == 1
    capsys.readouterr()
    data_set.say_problems(split)
    assert capsys.readouterr().err == f"captioning: left out: malformed rows: {problem.name}\n"


def test_a_table_that_cannot_be_read_leaves_the_other_splits(tmp_path: Path) -> None:
    draw(tmp_path, "train/1.jpg", "train/2.jpg", "valid/1.jpg")
    write(tmp_path / "my_train.csv", "image,caption\n1.jpg,a dog\n2.jpg,a cat\n")
    write(tmp_path / "my_valid.csv", "image,caption\n1.jpg,caf\udce9\n")
    data_set = reader_for(tmp_path).read()
    assert len(data_set.records("train")) == 2
    [problem] = data_set.problems
    assert (problem.kind, problem.split) == ("cannot be read", "val")
    with pytest.raises(InputError, match=r"my_valid\.csv: not UTF-8 text"):
        data_set.records("val")


def test_what_is_left_out_of_a_split_is_counted_and_named_in_a_line_for_each_kind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = ["1.png,a cat,train", "1.png,...,train", "1.png,!,train", "2.png,?,val", "1.png"]
    data_set = pets(tmp_path / "pets", *rows).read()
    folder = tmp_path / "pets"
    capsys.readouterr()
    data_set.say_problems("train")
    assert capsys.readouterr().err.splitlines() == [
        f"captioning: left out: malformed rows: {folder / 'captions.csv'}: line 6: 1 values, where "
        'the first line has 3; put a caption with commas in double quotes, "so, for example"',
        f"captioning: left out: captions without words: {folder / '1.png'}, and 1 more",
    ]
    assert [(problem.kind, problem.split) for problem in data_set.problems[3:]] == [
        ("captions without words", "val"),
        ("images without captions", "val"),
    ]


def test_images_without_names_are_called_by_their_ids(tmp_path: Path) -> None:
    folder = tmp_path / "data"  # Parquet files of the folder above could hold a photo 7
    folder.mkdir()
    annotations = coco_captions((7, "a dog"), (8, "a cat"))["annotations"]
    write(folder / "listed.json", {"images": [{"id": 7}, {"id": 8}], "annotations": annotations})
    write(folder / "unlisted.json", {"annotations": annotations})
    for name in ("listed.json", "unlisted.json"):
        references = read_references(folder / name)
        assert references.captions == {7: ("a dog",), 8: ("a cat",)}
        with pytest.raises(InputError, match=r"none of its images is in .* looked for '7'"):
            reader_for(folder / name).read()


def test_boxes_of_one_split_are_read_alone(coco: Path) -> None:
    for split in ("train", "val"):
        write(coco / f"annotations/instances_{split}2017.json", instances())
    splits = Coco(coco, objects="validation").read().splits
    objects = {split: sum(len(r.objects) for r in records) for split, records in splits.items()}
    assert objects == {"train": 0, "val": 1}


def test_a_text_file_that_is_not_utf_8_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    draw(tmp_path, "train/0.jpg", "train/1.jpg", "val/2.jpg")
    for name in ("train/0.txt", "val/2.txt"):
        write(tmp_path / name, "a dog")
    (tmp_path / "train/1.txt").write_bytes("the man\u2019s caf\u00e9".encode("cp1252"))
    data_set = reader_for(tmp_path).read()
    assert [record.image_id for record in data_set.records("train")] == ["train/0.jpg"]
    [problem] = data_set.problems
    assert problem.kind == "malformed rows"
    assert problem.name.startswith(f"{tmp_path / 'train/1.txt'}: not UTF-8 text")


BOXES = [[1, 2], [[]] * 4, [1, 2, 3, 10**9]]


@pytest.mark.parametrize("row", [*({"bbox": box} for box in BOXES), {"category_id": 3}])
def test_a_malformed_object_is_named_and_the_others_are_read(tmp_path: Path, row: Any) -> None:
    draw(tmp_path, "val/1.jpg")
    write(tmp_path / "annotations/captions_val.json", COCO)
    write(tmp_path / "annotations/instances_val.json", instances(**row))
    data_set = Coco(tmp_path).read()
    [problem] = data_set.problems
    assert "instances_val.json: annotation 1: " in problem.name
    assert len(data_set.records("val")[0].objects) == 1


def pets(folder: Path, *rows: str) -> CaptionTable:
    write(folder / "captions.csv", "\n".join(["file_name,caption,split", *rows]))
    draw(folder, "1.png", "2.png")
    return CaptionTable(folder)


def test_joined_data_sets_keep_their_ids_apart(tmp_path: Path) -> None:
    first = pets(tmp_path / "pets", "1.png,a cat,train", "2.png,a dog,val")
    second = pets(tmp_path / "birds", "1.png,a gull,train", "2.png, ,train")
    third = pets(tmp_path / "more/pets", "1.png,a pony,train")
    joined = Joined([first, second])
    data_set = joined.read()
    assert list(data_set.splits) == ["train", "val"]
    train = data_set.records("train")
    assert [record.captions for record in train] == [("a cat",), ("a gull",)]
    assert [record.image_id for record in train] == ["pets/1.png", "birds/1.png"]
    assert data_set.records("val")[0].image == first.read().records("val")[0].image
    kinds = {problem.kind for problem in data_set.problems}
    assert kinds == {"captions without words", "images without captions"}
    assert {"cat", "gull"} <= set(CaptionData(joined, min_count=1).vocabulary.words)
    assert len({record.image_id for record in Joined([first, third]).read().records("train")}) == 2
    rows = [f"{n}.png,a cat,{split}" for n in (1, 2) for split in ("train", "val", "test")]
    many = pets(tmp_path / "many", *rows, *rows)
    assert joined.mean_score({"pets/1.png": 4.0, "pets/2.png": 6.0, "birds/1.png": 0.2}) == 1.0
    assert joined.mean_score({"pets/1.png": 4.0, "pets/2.png": 6.0}) == 5.0
    balanced = Joined([first, many], balanced=True).read()
    train_ids = [record.image_id for record in balanced.records("train")]
    assert train_ids == ["pets/1.png", "many/1.png"]
    assert list(balanced.splits) == ["train", "val"]  # what the first data set has
    nested = Joined([first, pets(tmp_path / "pets/pets", "1.png,a cat,train")])
    [outer, inner] = nested.readers  # the name of one begins with that of the other
    assert nested.mean_score({f"{outer}/1.png": 4.0, f"{inner}/1.png": 0.25}) == 1.0
    for wrong in ([], [first, second, first]):
        with pytest.raises(InputError, match="give different data sets"):
            Joined(wrong)
    with pytest.raises(
        InputError, match=r"birds has no split 'tset'; it has train, val; .*--split"
    ):
        data_set.records("tset")


@pytest.mark.integration
def test_the_real_data_sets_have_five_captions_for_each_photo(shared_data: Path) -> None:
    found = {}
    for name in ("flickr8k", "coco-mini"):
        data_set = reader_for(shared_data / name).read()
        assert data_set.problems == []
        found[name] = [data_set.records(split) for split in ("train", "val")]
        assert all(len(record.captions) == 5 for records in found[name] for record in records)
    assert [len(records) for its in found.values() for records in its] == [6000, 1000, 60, 20]
    train, val = found["coco-mini"]
    objects = [thing for record in train + val for thing in record.objects]
    assert len(objects) == 558 + 181
    assert all(thing.mask for thing in objects)
