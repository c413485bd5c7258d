"""Layouts as they are published, and as people keep their own photos."""

import json
from pathlib import Path
from typing import Any

import pytest

from captioning.data.readers import CaptionTable, Coco, Karpathy, Reader, Sidecar, reader_for
from captioning.data.records import Record
from captioning.errors import InputError
from tests.data.conftest import draw, write


def found(reader: Reader) -> dict[str, tuple[str, ...]]:
    """The captions of all splits by the path of the photo below the root; all photos exist."""
    records = [record for split in reader.splits for record in reader.read(split)]
    assert all(record.image.is_file() for record in records)
    root = reader.root if reader.root.is_dir() else reader.root.parent
    return {record.image.relative_to(root).as_posix(): record.captions for record in records}


def test_kaggle_s_flickr8k(tmp_path: Path) -> None:
    write(
        tmp_path / "captions.txt",
        "image,caption\n"
        "1000268201_693b08cb0e.jpg,A child in a pink dress is climbing up a set of stairs .\n"
        "1000268201_693b08cb0e.jpg,A girl going into a wooden building .\n"
        '1012212859_01547e3f17.jpg,"A dog shakes its head near the shore , a red ball by it ."\n'
        '1012212859_01547e3f17.jpg,"A ""red"" ball ."\n',
    )
    draw(tmp_path, "Images/1000268201_693b08cb0e.jpg", "Images/1012212859_01547e3f17.jpg")
    reader = reader_for(tmp_path)
    assert isinstance(reader, CaptionTable)
    assert reader.splits == ("train", "val")
    assert found(reader) == {
        "Images/1000268201_693b08cb0e.jpg": (
            "A child in a pink dress is climbing up a set of stairs .",
            "A girl going into a wooden building .",
        ),
        "Images/1012212859_01547e3f17.jpg": (
            "A dog shakes its head near the shore , a red ball by it .",
            'A "red" ball .',
        ),
    }


def test_kaggle_s_flickr30k_with_its_broken_row(tmp_path: Path) -> None:
    write(
        tmp_path / "results.csv",
        "image_name| comment_number| comment\n"
        "1000092795.jpg| 0| Two young guys with shaggy hair look at their hands .\n"
        '1000092795.jpg| 1| " Two young , White males are outside .\n'
        "2199200615.jpg| 3| A dog is running on the grass .\n"
        "2199200615.jpg| 4   A dog runs across the grass .\n",
    )
    draw(tmp_path, "flickr30k_images/1000092795.jpg", "flickr30k_images/2199200615.jpg")
    assert found(reader_for(tmp_path)) == {
        "flickr30k_images/1000092795.jpg": (
            "Two young guys with shaggy hair look at their hands .",
            '" Two young , White males are outside .',
        ),
        "flickr30k_images/2199200615.jpg": (
            "A dog is running on the grass .",
            "A dog runs across the grass .",
        ),
    }


def test_flickr30k_s_token_file(tmp_path: Path) -> None:
    write(
        tmp_path / "results_20130124.token",
        "1000092795.jpg#0\tTwo young guys , with shaggy hair .\n"
        '1000092795.jpg#1\t" Two young males .\n'
        "10002456.jpg#0\tSeveral men in hard hats .\n",
    )
    draw(tmp_path, "flickr30k-images/1000092795.jpg", "flickr30k-images/10002456.jpg")
    assert found(reader_for(tmp_path)) == {
        "flickr30k-images/1000092795.jpg": (
            "Two young guys , with shaggy hair .",
            '" Two young males .',
        ),
        "flickr30k-images/10002456.jpg": ("Several men in hard hats .",),
    }


def test_flickr30k_s_annotations_of_the_hugging_face_hub(tmp_path: Path) -> None:
    write(
        tmp_path / "flickr_annotations_30k.csv",
        "raw,sentids,split,filename,img_id\n"
        '"[""Two young guys ."", ""Two men, outside .""]","[0, 1]",train,1000092795.jpg,0\n'
        '"[""Several men .""]",[2],val,10002456.jpg,1\n',
    )
    draw(tmp_path, "flickr30k-images/1000092795.jpg", "flickr30k-images/10002456.jpg")
    reader = reader_for(tmp_path)
    assert reader.read("train")[0].captions == ("Two young guys .", "Two men, outside .")
    assert reader.read("val")[0].captions == ("Several men .",)


def test_flickr8k_without_the_lists_of_its_splits_is_divided_by_a_hash(tmp_path: Path) -> None:
    write(
        tmp_path / "Flickr8k_text/Flickr8k.token.txt",
        "a.jpg#0\tA dog .\nb.jpg#0\tA cat .\n2258277193_586949ec62.jpg.1#0\tPeople .\n",
    )
    draw(tmp_path, "Flicker8k_Dataset/a.jpg", "Flicker8k_Dataset/b.jpg")
    reader = reader_for(tmp_path)
    assert reader.splits == ("train", "val")
    assert found(reader) == {
        "Flicker8k_Dataset/a.jpg": ("A dog .",),
        "Flicker8k_Dataset/b.jpg": ("A cat .",),
    }


@pytest.mark.parametrize("name", ["metadata.csv", "metadata.jsonl"])
def test_an_imagefolder_s_metadata_in_the_root(tmp_path: Path, name: str) -> None:
    rows = [("train/0001.png", "a golden retriever"), ("test/0002.png", "a german shepherd")]
    text = "file_name,additional_feature\n" + "".join(f"{n},{text}\n" for n, text in rows)
    if name == "metadata.jsonl":
        objects = [{"file_name": n, "additional_feature": text} for n, text in rows]
        text = "\n".join(map(json.dumps, objects))
    write(tmp_path / name, text)
    draw(tmp_path, *(name for name, _ in rows))
    reader = reader_for(tmp_path)
    assert reader.splits == ("train", "test")
    assert found(reader) == {name: (text,) for name, text in rows}


def test_an_imagefolder_s_metadata_in_folders_of_splits(tmp_path: Path) -> None:
    for split in ("train", "validation", "test"):
        write(tmp_path / split / "metadata.jsonl", {"file_name": "0.jpg", "text": f"of {split}"})
        draw(tmp_path, f"{split}/0.jpg")
    reader = reader_for(tmp_path)
    assert reader.splits == ("train", "val", "test")
    assert [reader.read(split)[0].captions for split in reader.splits] == [
        ("of train",),
        ("of validation",),
        ("of test",),
    ]
    assert reader.read("val")[0].image_id == "validation/0.jpg"


def test_an_imagefolder_of_train_alone_is_divided(tmp_path: Path) -> None:
    rows = [{"file_name": f"{i}.jpg", "text": "a dog"} for i in range(4)]
    write(tmp_path / "train/metadata.jsonl", "\n".join(map(json.dumps, rows)))
    draw(tmp_path, *(f"train/{i}.jpg" for i in range(4)))
    assert reader_for(tmp_path).splits == ("train", "val")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("my captions.csv", "\ufeffFile Name;Beschreibung;Nr\r\na.jpg;ein Hund, braun;1\r\n"),
        ("mine.tsv", 'Foto\tBildtext\na.jpg\t"ein ""Hund"""\n'),
        ("mine.csv", "a.jpg,ein Hund\n"),
        ("mine.txt", "a.jpg\tein Hund; und, mehr\n"),
        ("mine.json", '[{"image": "a.jpg", "caption": ["ein Hund", "ein Tier"]}]'),
        ("mine.json", '{"a.jpg": "ein Hund"}'),
        ("mine.csv", "image,caption_0,caption_1,caption_2\na.jpg,ein Hund,ein Tier,\n"),
    ],
)
def test_tables_of_any_name_and_separator(tmp_path: Path, name: str, text: str) -> None:
    write(tmp_path / name, text)
    draw(tmp_path, "a.jpg")
    expected = {
        "my captions.csv": ("ein Hund, braun",),
        "mine.tsv": ('ein "Hund"',),
        "mine.txt": ("ein Hund; und, mehr",),
    }.get(name, ("ein Hund", "ein Tier") if "Tier" in text else ("ein Hund",))
    assert found(reader_for(tmp_path)) == {"a.jpg": expected}
    assert found(reader_for(tmp_path / name)) == {"a.jpg": expected}


def test_excel_s_unicode_text_is_read(tmp_path: Path) -> None:
    (tmp_path / "captions.csv").write_text("file_name\tcaption\r\na.jpg\tein Bär\r\n", "utf-16")
    draw(tmp_path, "a.jpg")
    assert found(reader_for(tmp_path)) == {"a.jpg": ("ein Bär",)}


def test_an_ambiguous_column_of_captions_may_be_named(tmp_path: Path) -> None:
    write(tmp_path / "pairs.csv", "image,Title,Long text\na.jpg,a dog,a dog on a beach\n")
    draw(tmp_path, "a.jpg")
    with pytest.raises(InputError, match=r"columns are image, Title, Long text.*--caption-column"):
        reader_for(tmp_path).read("train")
    assert found(reader_for(tmp_path, caption_column="title")) == {"a.jpg": ("a dog",)}
    with pytest.raises(InputError, match="no column 'words'; its columns are image, Title, Long"):
        reader_for(tmp_path, caption_column="words").read("train")


def test_a_column_of_captions_is_refused_where_there_are_no_columns(tmp_path: Path) -> None:
    write(tmp_path / "annotations/captions_val.json", "{}")
    with pytest.raises(InputError, match="Coco, which has no columns; omit the caption column"):
        reader_for(tmp_path, caption_column="caption")


def test_tables_of_splits_whose_photos_have_the_same_names(tmp_path: Path) -> None:
    for split in ("train", "val"):
        write(tmp_path / f"{split}.csv", f"image,caption\n0.jpg,of {split}\n")
        draw(tmp_path, f"{split}/0.jpg")
    assert found(reader_for(tmp_path)) == {
        "train/0.jpg": ("of train",),
        "val/0.jpg": ("of val",),
    }


def test_tables_named_for_splits(tmp_path: Path) -> None:
    for split in ("train", "valid"):
        write(tmp_path / f"flickr30k_{split}.csv", f"image,caption\n{split}.jpg,a dog\n")
        draw(tmp_path, f"{split}.jpg")
    reader = reader_for(tmp_path)
    assert reader.splits == ("train", "val")
    assert reader.read("val")[0].image == tmp_path / "valid.jpg"


def test_several_tables_of_no_split_ask_for_one(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv"):
        write(tmp_path / name, "image,caption\na.jpg,a dog\n")
    with pytest.raises(InputError, match=r"holds a\.csv, b\.csv; give the path of one of them"):
        reader_for(tmp_path).read("train")


def test_two_tables_in_one_folder_of_a_split_ask_for_one(tmp_path: Path) -> None:
    for suffix in ("csv", "jsonl"):
        write(tmp_path / f"train/metadata.{suffix}", '"file_name","text"\na.jpg,b\n')
    with pytest.raises(InputError, match=r"train/metadata\.csv, train/metadata\.jsonl; give"):
        reader_for(tmp_path).read("train")


def test_a_column_of_splits_takes_their_usual_names(tmp_path: Path) -> None:
    rows = "a.jpg,a,Train\nb.jpg,b,validation\nc.jpg,c,dev\nd.jpg,d,TEST\ne.jpg,e,extra\n"
    write(tmp_path / "captions.csv", f"file_name,caption,split\n{rows}")
    reader = CaptionTable(tmp_path)
    assert reader.splits == ("train", "val", "test", "extra")
    assert [record.image_id for record in reader.read("val")] == ["b.jpg", "c.jpg"]
    assert reader.read("validation") == reader.read("val")


def test_r2gen_s_reports(tmp_path: Path) -> None:
    report = "The cardiomediastinal silhouette is normal. No pneumothorax."
    paths = ["CXR2384_IM-0942/0.png", "CXR2384_IM-0942/1.png"]
    entry = {"id": "CXR2384_IM-0942", "report": report, "image_path": paths, "split": "train"}
    other = {"id": "CXR9", "report": "Normal.", "image_path": ["CXR9/0.png"], "split": "val"}
    write(tmp_path / "annotation.json", {"train": [entry], "val": [other], "test": []})
    draw(tmp_path / "images", *paths, "CXR9/0.png")
    reader = reader_for(tmp_path)
    assert reader.splits == ("train", "val")
    assert found(reader) == {
        **{f"images/{path}": (report,) for path in paths},
        "images/CXR9/0.png": ("Normal.",),
    }


def test_textcaps(tmp_path: Path) -> None:
    for split in ("train", "val"):
        entry = {
            "image_id": f"{split}_24f6",
            "image_classes": ["Book"],
            "flickr_original_url": "https://farm.example/1_o.jpg",
            "image_width": 8,
            "set_name": split,
            "image_name": f"{split}_24f6",
            "image_path": f"{split}/{split}_24f6.jpg",
            "caption_id": 1,
            "caption_str": "A book is open.",
            "caption_tokens": ["a", "book", "is", "open"],
            "reference_strs": ["A book is open.", "Pages of a book."],
        }
        write(tmp_path / f"TextCaps_0.1_{split}.json", {"dataset_type": split, "data": [entry]})
    draw(tmp_path, "train_images/train_24f6.jpg", "train_images/val_24f6.jpg")
    reader = reader_for(tmp_path)
    assert reader.splits == ("train", "val")
    assert found(reader) == {
        f"train_images/{split}_24f6.jpg": ("A book is open.",) for split in ("train", "val")
    }


def coco(*names: str, **marks: bool) -> dict[str, Any]:
    images = [{"id": i, "file_name": name} for i, name in enumerate(names)]
    captions = [
        {"id": i, "image_id": i, "caption": f"photo {i}", **marks} for i in range(len(names))
    ]
    return {"info": {}, "images": images, "annotations": captions}


def test_nocaps(tmp_path: Path) -> None:
    content = coco("0013ea2087020901.jpg")
    content["images"][0] |= {"open_images_id": "0013ea2087020901", "domain": "near-domain"}
    write(tmp_path / "nocaps_val_4500_captions.json", content)
    draw(tmp_path, "validation/0013ea2087020901.jpg")
    reader = reader_for(tmp_path)
    assert isinstance(reader, Coco)
    assert reader.splits == ("val",)
    assert found(reader) == {"validation/0013ea2087020901.jpg": ("photo 0",)}


def test_vizwiz_without_the_captions_that_it_rejects(tmp_path: Path) -> None:
    for split in ("train", "val"):
        content = coco(f"VizWiz_{split}_00000000.jpg", is_rejected=False, is_precanned=False)
        spam = {"image_id": 0, "caption": "Quality issues are too severe", "is_precanned": True}
        content["annotations"].append(spam)
        write(tmp_path / f"annotations/{split}.json", content)
        draw(tmp_path, f"{split}/VizWiz_{split}_00000000.jpg")
    write(tmp_path / "annotations/test.json", {"images": []})  # which has no captions
    reader = reader_for(tmp_path)
    assert reader.splits == ("train", "val")
    assert found(reader) == {
        f"{split}/VizWiz_{split}_00000000.jpg": ("photo 0",) for split in ("train", "val")
    }


def test_one_file_in_coco_s_format_is_divided_by_a_hash_of_the_ids(tmp_path: Path) -> None:
    write(tmp_path / "export.json", coco(*(f"{i}.jpg" for i in range(40))))
    draw(tmp_path, *(f"photos/{i}.jpg" for i in range(40)))
    for root in (tmp_path, tmp_path / "export.json"):
        reader = reader_for(root)
        assert reader.splits == ("train", "val")
        assert len(reader.read("val")) == 5
        assert len(found(reader)) == 40


def test_coco_s_files_win_over_other_json_beside_them(tmp_path: Path) -> None:
    write(tmp_path / "annotations/captions_dev.json", coco("1.jpg"))
    write(tmp_path / "annotations/other.json", coco("2.jpg"))
    draw(tmp_path, "dev/1.jpg")
    reader = reader_for(tmp_path)
    assert reader.splits == ("val",)
    assert found(reader) == {"dev/1.jpg": ("photo 0",)}


@pytest.mark.parametrize(("listed", "used"), [("7", 7), (7, "7"), ("000000000007", 7)])
def test_ids_match_whether_numbers_or_text(tmp_path: Path, listed: Any, used: Any) -> None:
    images = [{"id": listed, "file_name": "7.jpg"}]
    captions = [{"image_id": used, "caption": "a dog"}]
    write(tmp_path / "annotations/captions_val.json", {"images": images, "annotations": captions})
    box = {"image_id": used, "category_id": 1, "bbox": [1, 2, 3, 4]}
    categories = [{"id": 1, "name": "dog"}]
    write(
        tmp_path / "annotations/instances_val.json",
        {"categories": categories, "annotations": [box]},
    )
    draw(tmp_path, "val/7.jpg")
    contents = Coco(tmp_path).contents("val")
    assert contents.problems == []
    [record] = contents.records
    assert (record.image_id, record.captions, len(record.objects)) == (listed, ("a dog",), 1)


@pytest.mark.parametrize("name", ["dataset_coco.json", "my karpathy.json"])
def test_karpathy_s_images_are_found_wherever_they_lie(tmp_path: Path, name: str) -> None:
    sentences = [{"raw": "a dog", "tokens": ["a", "dog"]}]
    image = {"filepath": "val2014", "filename": "COCO_val2014_1.jpg", "cocoid": 1}
    entry = image | {"sentences": sentences, "split": "restval", "imgid": 0}
    write(tmp_path / name, {"images": [entry], "dataset": "coco"})
    draw(tmp_path, "downloads/photos/COCO_val2014_1.jpg")
    reader = reader_for(tmp_path)
    assert isinstance(reader, Karpathy)
    assert reader.splits == ("train",)
    assert found(reader) == {"downloads/photos/COCO_val2014_1.jpg": ("a dog",)}


def test_text_files_beside_photos(tmp_path: Path) -> None:
    draw(tmp_path, "a.jpg", "more/b.PNG", "c.jpg", "d.jpg")
    write(tmp_path / "a.txt", "\ufeffa dog, running\r\n\r\na brown dog\r\n")
    write(tmp_path / "more/b.txt", "a cat")
    write(tmp_path / "c.jpg.txt", "a bird")
    reader = reader_for(tmp_path)
    assert isinstance(reader, Sidecar)
    assert reader.splits == ("train", "val")
    assert found(reader) == {
        "a.jpg": ("a dog, running", "a brown dog"),
        "more/b.PNG": ("a cat",),
        "c.jpg": ("a bird",),
    }
    problems = [p for split in reader.splits for p in reader.contents(split).problems]
    assert [(p.kind, p.name) for p in problems] == [
        ("images without captions", str(tmp_path / "d.jpg"))
    ]


@pytest.mark.parametrize("folder", ["", "00000/"])
def test_img2dataset_s_files(tmp_path: Path, folder: str) -> None:
    for number in range(2):
        file = tmp_path / f"{folder}00000000{number}"
        draw(tmp_path, f"{folder}{file.name}.jpg")
        write(file.with_suffix(".txt"), f"photo {number}")
        told = {"url": f"https://example.org/{number}.jpg", "caption": "", "key": file.name}
        write(file.with_suffix(".json"), told)
    reader = reader_for(tmp_path)
    assert isinstance(reader, Sidecar)
    assert sorted(found(reader).values()) == [("photo 0",), ("photo 1",)]


def test_text_files_in_folders_of_splits(tmp_path: Path) -> None:
    for name in ("Train/0.jpg", "valid/0.jpg"):
        draw(tmp_path, name)
        write((tmp_path / name).with_suffix(".txt"), name)
    reader = reader_for(tmp_path)
    assert reader.splits == ("train", "val")
    assert reader.read("val")[0].captions == ("valid/0.jpg",)


def test_the_share_for_validation_is_larger_for_few_photos_and_may_be_given(tmp_path: Path) -> None:
    text = "file_name,caption\n" + "".join(f"{i}.jpg,a dog\n" for i in range(120))
    write(tmp_path / "many.csv", text)
    write(tmp_path / "few.csv", text[: text.index("99.jpg")])
    draw(tmp_path, *(f"{i}.jpg" for i in range(120)))

    def validation(name: str, share: float | None = None) -> list[Record]:
        return reader_for(tmp_path / name, val_fraction=share).read("val")

    assert validation("many.csv") == validation("many.csv", 0.1)
    assert validation("few.csv") == validation("few.csv", 0.25)
    assert len(validation("many.csv", 0.1)) < len(validation("many.csv", 0.5))
    assert reader_for(tmp_path / "few.csv", val_fraction=0.0).splits == ("train",)


def test_a_missing_split_says_how_to_name_another(tmp_path: Path) -> None:
    write(tmp_path / "captions.csv", "file_name,caption,split\na.jpg,a,train\nb.jpg,b,extra\n")
    with pytest.raises(InputError, match=r"no split 'val'; it has train, extra;.*val_split"):
        CaptionTable(tmp_path).read("val")
