import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from captioning.data.readers import CaptionTable, Coco, Flickr8k, Karpathy, Reader, reader_for
from captioning.errors import InputError
from tests.data.conftest import draw, write


def assert_refused(action: Callable[[], object], *parts: str) -> None:
    with pytest.raises(InputError) as caught:
        action()
    message = str(caught.value)
    assert all(part in message for part in parts), message


def coco_captions(*captions: tuple[int, str], images: tuple[int, ...] = (1,)) -> dict[str, Any]:
    return {
        "images": [{"id": image, "file_name": f"{image}.jpg"} for image in images],
        "annotations": [
            {"id": number, "image_id": image, "caption": caption}
            for number, (image, caption) in enumerate(captions)
        ],
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


def instances(**changes: Any) -> dict[str, Any]:
    box = {"id": 5, "image_id": 1, "category_id": 9, "bbox": [1, 2, 3, 4.5], "iscrowd": 0}
    return {
        "images": [{"id": 1}],
        "categories": [{"id": 9, "name": "cat"}],
        "annotations": [{**box, "segmentation": [[1, 2, 4, 2, 4, 6]], **changes}],
    }


def test_coco_gathers_the_captions_of_each_image(coco: Path) -> None:
    reader = reader_for(coco)
    assert isinstance(reader, Coco)
    records = reader.read("train")
    assert [(record.image_id, record.captions) for record in records] == [
        (2, ("a dog",)),
        (1, ("a cat", "one cat")),
    ]
    assert records[0].image == coco / "train2017/2.jpg"


def test_coco_gives_objects_with_boxes_and_masks_where_it_has_them(
    coco: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(coco / "annotations/instances_train2017.json", instances())
    objects = {record.image_id: record.objects for record in Coco(coco).read("train")}
    assert [(found.name, found.box, found.mask) for found in objects[1]] == [
        ("cat", (1.0, 2.0, 3.0, 4.5), [[1, 2, 4, 2, 4, 6]])
    ]
    assert objects[2] == ()
    assert capsys.readouterr().out == ""


def test_objects_are_left_out_where_they_are_not_wanted(coco: Path) -> None:
    write(coco / "annotations/instances_train2017.json", instances())
    assert not any(record.objects for record in Coco(coco, objects=False).read("train"))


@pytest.mark.parametrize(
    "changes",
    [
        *({"bbox": [1, 2]}, {"bbox": None}, {"category_id": 3}, {"image_id": [1]}),
        *({"bbox": [1, 2, 3, 10**399]}, {"bbox": [float("nan"), 2, 3, 4]}, {"bbox": [[]] * 4}),
    ],
)
def test_malformed_instances_are_one_line(coco: Path, changes: dict[str, Any]) -> None:
    write(coco / "annotations/instances_train2017.json", instances(**changes))
    assert_refused(lambda: Coco(coco).read("train"), "instances_train2017.json")


def test_malformed_instances_say_how_to_do_without_boxes(coco: Path) -> None:
    write(coco / "annotations/instances_train2017.json", instances(bbox=None))
    assert_refused(lambda: Coco(coco).read("train"), "objects: false")
    assert len(Coco(coco, objects=False).read("train")) == 2


def test_a_box_beyond_all_numbers_is_one_line(coco: Path) -> None:
    text = json.dumps(instances()).replace("4.5", "1e999")  # infinity, once it has been read
    write(coco / "annotations/instances_train2017.json", text)
    assert_refused(lambda: Coco(coco).read("train"), "bbox [1, 2, 3, inf]")


@pytest.mark.parametrize("name", ["a" * 300, "a\0b", "/".join("a" * 3000)])
def test_an_image_whose_name_no_file_can_have_is_one_line(coco: Path, name: str) -> None:
    path = coco / "annotations/captions_val2017.json"
    write(path, {"images": [{"id": 1, "file_name": name}], "annotations": []})
    assert_refused(lambda: Coco(coco).read("val"), "none of its images is in")


def test_coco_images_may_lie_elsewhere(coco: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "disk"
    (coco / "val2017").rename(tmp_path / "moved")
    draw(elsewhere, "val2017/1.jpg")
    assert Coco(coco, images=elsewhere).read("val")[0].image == elsewhere / "val2017/1.jpg"


def test_coco_without_its_images_says_where_it_looked(coco: Path) -> None:
    (coco / "val2017/1.jpg").unlink()
    assert_refused(lambda: Coco(coco).read("val"), "captions_val2017.json", "val2017")


def test_coco_annotations_may_lie_elsewhere(coco: Path) -> None:
    (coco / "annotations").rename(coco / "json")
    assert Coco(coco, annotations=coco / "json").splits == ("train", "val")


def test_two_releases_of_a_split_are_named_in_full_unless_one_is_chosen(coco: Path) -> None:
    write(coco / "annotations/captions_train2014.json", coco_captions((1, "a cat")))
    assert Coco(coco).splits == ("val", "train2014", "train2017")
    assert Coco(coco, year=2017).splits == ("train", "val")


def karpathy_image(split: str, number: int, **more: Any) -> dict[str, Any]:
    sentences = [{"raw": f"A {split} photo.", "tokens": ["a", split, "photo"]}]
    name = f"{number}.jpg"
    return {"filename": name, "imgid": number, "split": split, "sentences": sentences, **more}


def test_karpathy_adds_restval_to_train_and_takes_coco_ids(tmp_path: Path) -> None:
    images = [
        karpathy_image("restval", 0, filepath="val2014", cocoid=70),
        karpathy_image("train", 1, filepath="train2014", cocoid=71),
        karpathy_image("test", 2, filepath="val2014", cocoid=72),
    ]
    write(tmp_path / "dataset_coco.json", {"images": images, "dataset": "coco"})
    draw(tmp_path, "photos/val2014/0.jpg")
    reader = Karpathy(tmp_path, images=tmp_path / "photos")
    assert reader.splits == ("train", "test")
    assert [record.image_id for record in reader.read("train")] == [70, 71]
    assert reader.read("train")[0].image == tmp_path / "photos/val2014/0.jpg"
    assert reader.read("test")[0].captions == ("A test photo.",)


def test_karpathy_of_flickr8k_finds_its_images_and_takes_their_numbers(tmp_path: Path) -> None:
    write(tmp_path / "dataset_flickr8k.json", {"images": [karpathy_image("val", 4)]})
    draw(tmp_path, "Images/4.jpg")
    [record] = Karpathy(tmp_path / "dataset_flickr8k.json").read("val")
    assert (record.image, record.image_id) == (tmp_path / "Images/4.jpg", 4)


def test_several_karpathy_files_ask_for_one(tmp_path: Path) -> None:
    for name in ("coco", "flickr8k"):
        write(tmp_path / f"dataset_{name}.json", {"images": []})
    assert_refused(lambda: Karpathy(tmp_path).splits, "dataset_coco.json, dataset_flickr8k.json")


@pytest.fixture
def flickr8k(tmp_path: Path) -> Path:
    lines = ["a.jpg#0\tA dog .", "a.jpg#1\tOne dog .", "b.jpg#0\tA cat .", "b.jpg.1#0\tBroken ."]
    write(tmp_path / "Flickr8k.token.txt", "\n".join(lines) + "\n")
    write(tmp_path / "Flickr_8k.trainImages.txt", "a.jpg\n")
    write(tmp_path / "Flickr_8k.devImages.txt", "b.jpg\n")
    draw(tmp_path / "Flicker8k_Dataset", "a.jpg", "b.jpg")
    return tmp_path


def test_flickr8k_calls_its_dev_images_val_and_ignores_what_is_in_no_split(flickr8k: Path) -> None:
    reader = reader_for(flickr8k)
    assert isinstance(reader, Flickr8k)
    assert reader.splits == ("train", "val")
    [train], [val] = reader.read("train"), reader.read("val")
    assert (train.image_id, train.captions) == ("a", ("A dog .", "One dog ."))
    assert val.image == flickr8k / "Flicker8k_Dataset/b.jpg"
    assert reader.contents("val").problems == []


def test_a_malformed_flickr8k_line_is_named_by_number(flickr8k: Path) -> None:
    write(flickr8k / "Flickr8k.token.txt", "a.jpg#0\tA dog .\nb.jpg A cat .\n")
    assert_refused(lambda: Flickr8k(flickr8k).read("train"), "Flickr8k.token.txt: line 2")


NOT_CAPTIONS: dict[str, Any] = {
    "a list": [1, 2],
    "no images": {"annotations": []},
    "no annotations": {"images": []},
    "images of a wrong type": {"images": {"1": "a.jpg"}, "annotations": []},
    "an image without a name": {"images": [{"id": 1}], "annotations": []},
    "an image that is a number": {"images": [7], "annotations": []},
    "an annotation without a caption": {
        "images": [{"id": 1, "file_name": "1.jpg"}],
        "annotations": [{"image_id": 1, "bbox": [1, 2, 3, 4]}],
    },
    "a caption that is a number": coco_captions((1, 5)),  # type: ignore[arg-type]
    "truncated": '{"images": [{"id": 1, "file_na',
    "empty": "",
}


@pytest.mark.parametrize("content", NOT_CAPTIONS.values(), ids=NOT_CAPTIONS.keys())
def test_a_json_that_is_not_coco_is_one_line(coco: Path, content: Any) -> None:
    write(coco / "annotations/captions_val2017.json", content)
    assert_refused(lambda: Coco(coco).read("val"), "captions_val2017.json")


@pytest.mark.parametrize(
    "content", [[], {}, {"images": [{}]}, {"images": [karpathy_image("val", 1, sentences=[{}])]}]
)
def test_a_json_that_is_not_karpathys_is_one_line(tmp_path: Path, content: Any) -> None:
    draw(tmp_path, "1.jpg")
    write(tmp_path / "dataset_coco.json", content)
    assert_refused(lambda: Karpathy(tmp_path).splits, "dataset_coco.json")


def test_a_caption_set_without_captions_is_one_line(coco: Path) -> None:
    write(coco / "annotations/captions_val2017.json", coco_captions((1, " ")))
    assert_refused(lambda: Coco(coco).read("val"), str(coco), "'val' has no captions; add some")


def test_an_unknown_split_is_an_error_that_lists_the_splits(coco: Path) -> None:
    assert_refused(
        lambda: Coco(coco).read("tset"), f"{coco} has no split 'tset'; it has train, val"
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("dataset_coco.json", Karpathy),
        ("captions.csv", CaptionTable),
        ("captions.jsonl", CaptionTable),
    ],
)
def test_a_single_file_is_recognised_by_itself_and_by_its_folder(
    tmp_path: Path, name: str, expected: type[Reader]
) -> None:
    (tmp_path / name).touch()
    assert isinstance(reader_for(tmp_path), expected)
    assert isinstance(reader_for(tmp_path / name), expected)


def test_a_single_photo_is_no_data_set(tmp_path: Path) -> None:
    draw(tmp_path, "a.JPG")
    assert_refused(lambda: reader_for(tmp_path / "a.JPG"), "a photo, not a data set; give the")


def test_an_unknown_layout_is_an_error_that_lists_the_known_ones(tmp_path: Path) -> None:
    assert_refused(lambda: reader_for(tmp_path), str(tmp_path), "COCO", "Karpathy", "captions.csv")
    assert_refused(lambda: reader_for(tmp_path / "absent"), "absent: no such folder")


def test_the_real_coco_slice_has_captions_boxes_and_masks(shared_data: Path) -> None:
    reader = reader_for(shared_data / "coco-mini")
    train, val = reader.read("train"), reader.read("val")
    assert (len(train), len(val)) == (60, 20)
    assert all(len(record.captions) == 5 and record.image.is_file() for record in train + val)
    objects = [found for record in train + val for found in record.objects]
    assert len(objects) == 558 + 181
    assert all(found.mask for found in objects)


def test_the_real_flickr8k_has_five_captions_for_each_photo(shared_data: Path) -> None:
    reader = reader_for(shared_data / "flickr8k")
    train, val = reader.read("train"), reader.read("val")
    assert (len(train), len(val)) == (6000, 1000)
    assert all(len(record.captions) == 5 for record in train + val)
    assert reader.contents("train").problems == []
