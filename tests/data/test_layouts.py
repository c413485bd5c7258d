"""Layouts as they are published, and as people keep their own photos."""

import re
import shutil
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from PIL import Image

from captioning.data import readers
from captioning.data.folder_check import check
from captioning.data.readers import CaptionTable, Coco, Flickr8k, Karpathy, Reader, reader_for
from captioning.errors import InputError
from tests.conftest import draw_photos
from tests.data.conftest import coco_captions, draw, write

Captions = dict[str, tuple[str, ...]]


def found(reader: Reader) -> dict[str, Captions]:
    """By split the captions by the path of the photo below the root; all photos exist."""
    root = reader.root if reader.root.is_dir() else reader.root.parent
    data_set = reader.read()
    splits = {split: data_set.records(split) for split in data_set.splits}
    assert all(record.image.is_file() for records in splits.values() for record in records)
    return {
        split: {record.image.relative_to(root).as_posix(): record.captions for record in records}
        for split, records in splits.items()
    }


def merged(splits: dict[str, Captions]) -> Captions:
    return {name: captions for records in splits.values() for name, captions in records.items()}


def karpathy(split: str, number: int, **more: Any) -> dict[str, Any]:
    sentences = [{"raw": f"A {split} photo.", "tokens": ["a", split, "photo"]}]
    name = f"{number}.jpg"
    return {"filename": name, "imgid": number, "split": split, "sentences": sentences, **more}


def textcaps(split: str) -> dict[str, Any]:
    name, text = f"{split}_24f6", "A book is open."
    entry = {"image_id": name, "flickr_original_url": "https://farm.example/1_o.jpg"}
    entry |= {"image_width": 8, "set_name": split, "image_name": name, "caption_id": 1}
    entry |= {"image_path": f"{split}/{name}.jpg", "caption_str": text}
    entry |= {"caption_tokens": text.split(), "reference_strs": [text, "Pages of a book."]}
    return {"dataset_type": split, "data": [entry]}


class Layout(NamedTuple):
    """The files of a data set, and what a reader finds there, by split if these name any."""

    files: dict[str, Any]
    expected: Captions | dict[str, Captions]
    reader: type[Reader] = CaptionTable


REPORT = "The cardiomediastinal silhouette is normal. No pneumothorax."
SCANS = ("CXR2384/0.png", "CXR2384/1.png")

UNMARKED = {"is_rejected": False, "is_precanned": False}

LAYOUTS = {
    "Kaggle's Flickr8k": Layout(
        {
            "captions.txt": "image,caption\n1_a.jpg,A child in a pink dress .\n1_a.jpg,A girl .\n"
            '2_b.jpg,"A dog near the shore , a ""red"" ball ."\n'
        },
        {
            "Images/1_a.jpg": ("A child in a pink dress .", "A girl ."),
            "Images/2_b.jpg": ('A dog near the shore , a "red" ball .',),
        },
    ),
    "Kaggle's Flickr30k with its broken row": Layout(
        {
            "results.csv": "image_name| comment_number| comment\n1.jpg| 0| Two guys , outside .\n"
            '1.jpg| 1| " Two young , White males .\n2.jpg| 3| A dog .\n2.jpg| 4   A dog runs .\n'
        },
        {
            "flickr30k_images/1.jpg": ("Two guys , outside .", '" Two young , White males .'),
            "flickr30k_images/2.jpg": ("A dog .", "A dog runs ."),
        },
    ),
    "Flickr30k's token file": Layout(
        {"results_20130124.token": '1.jpg#0\tTwo guys , .\n1.jpg#1\t" Two .\n2.jpg#0\tMen .\n'},
        {
            "flickr30k-images/1.jpg": ("Two guys , .", '" Two .'),
            "flickr30k-images/2.jpg": ("Men .",),
        },
    ),
    "Flickr30k of the Hub": Layout(
        {
            "flickr_annotations_30k.csv": "raw,sentids,split,filename,img_id\n"
            '"[""Two guys ."", ""Two men, outside .""]","[0, 1]",train,1.jpg,0\n'
            '"[""Several men .""]",[2],val,2.jpg,1\n'
        },
        {
            "train": {"flickr30k-images/1.jpg": ("Two guys .", "Two men, outside .")},
            "val": {"flickr30k-images/2.jpg": ("Several men .",)},
        },
    ),
    "Flickr8k": Layout(
        {
            "Flickr8k.token.txt": "a.jpg#0\tA dog .\na.jpg#1\tOne dog .\nb.jpg#0\tA cat .\n"
            "b.jpg.1#0\tBroken .\n",
            "Flickr_8k.trainImages.txt": "a.jpg\n",
            "Flickr_8k.devImages.txt": "b.jpg\n",
        },
        {
            "train": {"Flicker8k_Dataset/a.jpg": ("A dog .", "One dog .")},
            "val": {"Flicker8k_Dataset/b.jpg": ("A cat .",)},
        },
        Flickr8k,
    ),
    "Flickr8k without the lists of its splits": Layout(
        {"Flickr8k_text/Flickr8k.token.txt": "a.jpg#0\tDog\nb.jpg#0\tCat\nc.jpg.1#0\tBroken\n"},
        {"Flicker8k_Dataset/a.jpg": ("Dog",), "Flicker8k_Dataset/b.jpg": ("Cat",)},
        Flickr8k,
    ),
    "imagefolder, CSV": Layout(
        {"metadata.csv": "file_name,text\ntrain/1.png,a dog\ntest/2.png,a cat\n"},
        {"train": {"train/1.png": ("a dog",)}, "test": {"test/2.png": ("a cat",)}},
    ),
    "imagefolder, JSON lines": Layout(
        {
            "metadata.jsonl": '{"file_name": "train/1.png", "text": "a dog"}\n'
            '{"file_name": "test/2.png", "text": "a cat"}'
        },
        {"train": {"train/1.png": ("a dog",)}, "test": {"test/2.png": ("a cat",)}},
    ),
    "imagefolder, in folders of splits": Layout(
        {
            f"{split}/metadata.jsonl": {"file_name": "0.jpg", "text": f"of {split}"}
            for split in ("train", "validation", "test")
        },
        {
            "train": {"train/0.jpg": ("of train",)},
            "val": {"validation/0.jpg": ("of validation",)},
            "test": {"test/0.jpg": ("of test",)},
        },
    ),
    "imagefolder of train alone": Layout(
        {"train/metadata.csv": "file_name,text\n" + "".join(f"{i}.jpg,x\n" for i in range(4))},
        {f"train/{i}.jpg": ("x",) for i in range(4)},
    ),
    "tables named for splits, whose photos have the same names": Layout(
        {f"flickr30k_{s}.csv": f"image,caption\n0.jpg,of {s}\n" for s in ("train", "valid")},
        {"train": {"train/0.jpg": ("of train",)}, "val": {"valid/0.jpg": ("of valid",)}},
    ),
    "R2Gen's reports": Layout(
        {
            "annotation.json": {
                "train": [{"id": "CXR2384", "report": REPORT, "image_path": SCANS}],
                "val": [{"id": "CXR9", "report": "Normal.", "image_path": ["CXR9/0.png"]}],
                "test": [],
            }
        },
        {
            "train": {f"images/{scan}": (REPORT,) for scan in SCANS},
            "val": {"images/CXR9/0.png": ("Normal.",)},
        },
    ),
    "TextCaps": Layout(
        {f"TextCaps_0.1_{split}.json": textcaps(split) for split in ("train", "val")},
        {
            split: {f"train_images/{split}_24f6.jpg": ("A book is open.",)}
            for split in ("train", "val")
        },
    ),
    "NoCaps": Layout(
        {"nocaps_val_4500_captions.json": coco_captions((13, "a photo"))},
        {"val": {"validation/13.jpg": ("a photo",)}},
        Coco,
    ),
    "VizWiz, with captions that it rejects": Layout(
        {
            "annotations/train.json": coco_captions((1, "a photo")),
            "annotations/val.json": {
                "images": coco_captions(images=(2, 3))["images"],
                "annotations": [
                    {"image_id": 2, "caption": "a photo", **UNMARKED},
                    {"image_id": 2, "caption": "Quality issues", "is_precanned": True},
                    {"image_id": 3, "caption": "Quality issues", "is_rejected": True},
                ],
            },
            "annotations/test.json": {"images": []},  # which has no captions
        },
        {"train": {"train/1.jpg": ("a photo",)}, "val": {"val/2.jpg": ("a photo",)}},
        Coco,
    ),
    "COCO beside other JSON": Layout(
        {
            "annotations/captions_dev.json": coco_captions((1, "a photo")),
            "annotations/other.json": coco_captions((2, "a photo")),
        },
        {"val": {"dev/1.jpg": ("a photo",)}},
        Coco,
    ),
    "Karpathy's": Layout(
        {
            "dataset_coco.json": {
                "images": [
                    karpathy("restval", 0, filepath="val2014"),
                    karpathy("train", 1, filepath="train2014"),
                    karpathy("val", 3, filepath="val2014"),
                    karpathy("test", 2, filepath="val2014"),
                ]
            }
        },
        {
            "train": {
                "downloads/val2014/0.jpg": ("A restval photo.",),
                "downloads/train2014/1.jpg": ("A train photo.",),
            },
            "val": {"downloads/val2014/3.jpg": ("A val photo.",)},
            "test": {"downloads/val2014/2.jpg": ("A test photo.",)},
        },
        Karpathy,
    ),
    "Karpathy's under another name": Layout(
        {"mine.json": {"images": [karpathy("val", 4)], "dataset": "flickr8k"}},
        {"val": {"Images/4.jpg": ("A val photo.",)}},
        Karpathy,
    ),
    "text files beside photos": Layout(
        {
            "a.txt": "\ufeffa dog, running\r\n\r\na brown dog\r\n",
            "more/b.txt": "a cat",
            "c.jpg.txt": "a bird",
        },
        {
            "a.jpg": ("a dog, running", "a brown dog"),
            "more/b.PNG": ("a cat",),
            "c.jpg": ("a bird",),
        },
        readers.Sidecar,
    ),
    "text files in folders of splits": Layout(
        {"Train/0.txt": "of train", "valid/0.txt": "of valid"},
        {"train": {"Train/0.jpg": ("of train",)}, "val": {"valid/0.jpg": ("of valid",)}},
        readers.Sidecar,
    ),
    "gallery-dl's and Google Takeout's files": Layout(
        {
            "a.txt": "a dog",
            "a.jpg.json": {"id": 1, "filename": "a.jpg", "description": "of the web"},
            "b.jpg.txt": "a cat",
            "b.jpg.supplemental-metadata.json": {"title": "b.jpg", "description": ""},
        },
        {"a.jpg": ("a dog",), "b.jpg": ("a cat",)},
        readers.Sidecar,
    ),
    "img2dataset's files": Layout(
        {
            "00000/0.txt": "photo 0",
            "00000/0.json": {"url": "https://a.example/0.jpg", "caption": "", "key": "0"},
            "00000/1.txt": "photo 1",
            "00000/1.json": {"url": "https://a.example/1.jpg", "caption": "", "key": "1"},
        },
        {"00000/0.jpg": ("photo 0",), "00000/1.jpg": ("photo 1",)},
        readers.Sidecar,
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_a_published_layout_is_read_as_it_is(tmp_path: Path, layout: Layout) -> None:
    for name, content in layout.files.items():
        write(tmp_path / name, content)
    splits: Any = layout.expected
    is_divided = all(isinstance(captions, tuple) for captions in splits.values())
    draw(tmp_path, *(splits if is_divided else merged(splits)))
    reader = reader_for(tmp_path)
    assert type(reader) is layout.reader
    if is_divided:
        assert list(found(reader)) == ["train", "val"]
        assert merged(found(reader)) == splits
    else:
        assert found(reader) == splits


HUND, BEIDE = ["ein Hund"], ["ein Hund", "ein Tier"]


@pytest.mark.parametrize(
    ("name", "text", "captions"),
    [
        ("my own.csv", "\ufeffFile Name;Text;Nr\r\na.jpg;Hund, da;1\r\n", ["Hund, da"]),
        ("mine.tsv", 'Photo\tCaption\na.jpg\t"ein ""Hund"""\n', ['ein "Hund"']),
        ("mine.csv", "a.jpg,ein Hund\n", HUND),
        ("mine.json", '{"a": "ein Hund"}', HUND),
        ("mine.json", '{"D:\\\\train\\\\a": {"tags": "1dog", "caption": "ein Hund"}}', HUND),
        ("mine.csv", "file_name,blip_caption,caption_id\na,ein Hund,7\n", HUND),
        ("mine.jsonl", '{"image": "a.jpg", "prefix": "caption de", "suffix": "ein Hund"}', HUND),
        ("mine.ndjson", '{"image": "a.jpg", "caption": "ein Hund"}\n', HUND),
        ("mine.txt", "a.jpg\tein Hund; und, mehr\n", ["ein Hund; und, mehr"]),
        ("mine.json", '[{"image": "a.jpg", "caption": ["ein Hund", "ein Tier"]}]', BEIDE),
        ("mine.json", '{"a.jpg": "ein Hund"}', HUND),
        ("mine.csv", "image,caption\na.jpg,\"['ein Hund', 'ein Tier']\"\n", BEIDE),
        (
            "mine.tsv",
            'image\tcaption\na.jpg\t[\'ein "Hund"\', "Tim\'s"]\n',
            ['ein "Hund"', "Tim's"],
        ),
        ("mine.csv", "image,caption_0,caption_1,caption_2\na.jpg,ein Hund,ein Tier,\n", BEIDE),
        (
            "mine.jsonl",
            '{"filename": "a.jpg", "sentences": [{"raw": "ein Hund"}, {"raw": "ein Tier"}]}',
            BEIDE,
        ),
        ("mine.jsonl", '{"img": "a.jpg", "sentences": {"raw": ["ein Hund", "ein Tier"]}}', BEIDE),
    ],
)
def test_tables_of_any_name_and_separator(
    tmp_path: Path, name: str, text: str, captions: list[str]
) -> None:
    write(tmp_path / name, text)
    draw(tmp_path, "a.jpg")
    for root in (tmp_path, tmp_path / name):
        assert merged(found(reader_for(root))) == {"a.jpg": tuple(captions)}


def test_an_ambiguous_column_of_captions_may_be_named(tmp_path: Path) -> None:
    write(tmp_path / "pairs.csv", "image,Title,Long text\na.jpg,a dog,a dog on a beach\n")
    draw(tmp_path, "a.jpg")
    assert merged(found(reader_for(tmp_path, caption_column="title"))) == {"a.jpg": ("a dog",)}
    write(tmp_path / "pairs.csv", "Image,The photo,Text\n1,a.jpg,a dog\n")
    assert merged(found(reader_for(tmp_path, photo_column="the photo"))) == {"a.jpg": ("a dog",)}


def test_two_columns_of_one_name_both_hold_captions(tmp_path: Path) -> None:
    rows = "file_name,caption,note,caption\na.jpg,a dog,,a brown dog\nb.jpg,,,a cat\n"
    write(tmp_path / "pairs.csv", rows)
    draw_photos(tmp_path, "a.jpg", "b.jpg")
    assert merged(found(reader_for(tmp_path))) == {
        "a.jpg": ("a dog", "a brown dog"),
        "b.jpg": ("a cat",),
    }
    write(tmp_path / "pairs.csv", "file_name,caption 1,caption,caption,,\na.jpg,one,two,three,,\n")
    assert merged(found(reader_for(tmp_path))) == {"a.jpg": ("one", "two", "three")}
    write(tmp_path / "pairs.csv", "file_name,file_name,caption\na.jpg,b.jpg,a dog\n")
    with pytest.raises(InputError, match="file_name 1, file_name 2, caption: none is that of the"):
        found(reader_for(tmp_path / "pairs.csv"))


def test_of_reviewed_captions_the_dropped_are_left_out_and_the_corrected_used(
    tmp_path: Path,
) -> None:
    rows = [
        '"a.jpg","a dog","accept","a dog"',
        '"a.jpg","","drop","a cat on a sofa"',
        '"b.jpg"," =a red, ""big"" bus","correct","a bus"',
        '"c.jpg","","drop","a tree"',
    ]
    header = '"file_name","caption","decision","before"'
    write(tmp_path / "decisions.csv", "".join(f"{row}\r\n" for row in [header, *rows]))
    draw_photos(tmp_path, "a.jpg", "b.jpg", "c.jpg")
    reader = reader_for(tmp_path / "decisions.csv")
    assert merged(found(reader)) == {"a.jpg": ("a dog",), "b.jpg": ('=a red, "big" bus',)}
    assert check(reader, progress=False).ok
    write(tmp_path / "decisions.csv", "image,caption,decision\na.jpg,a,drop\nb.jpg,b,keep\n")
    assert len(merged(found(reader_for(tmp_path / "decisions.csv")))) == 2  # of no review


def test_names_without_suffix_are_those_of_one_photo(tmp_path: Path) -> None:
    """A raw file beside its photo is no second one; two photos of a name are not told apart."""
    write(tmp_path / "captions.json", {"a": "a dog", "b": "a cat"})
    draw(tmp_path, "a.jpg", "b.jpg", "b.png")
    (tmp_path / "a.CR2").write_bytes(b"raw")
    records = CaptionTable(tmp_path / "captions.json", val_fraction=0.0).read().records("train")
    assert [record.image.is_file() for record in records] == [True, False]


def test_a_column_of_splits_takes_their_usual_names(tmp_path: Path) -> None:
    rows = "a.jpg,a,Train\nb.jpg,b,validation\nc.jpg,c,dev\nd.jpg,d,TEST\ne.jpg,e,extra\n"
    write(tmp_path / "captions.csv", f"file_name,caption,split\n{rows}")
    data_set = CaptionTable(tmp_path).read()
    assert list(data_set.splits) == ["train", "val", "test", "extra"]
    assert [record.image_id for record in data_set.records("val")] == ["b.jpg", "c.jpg"]
    assert data_set.records("validation") == data_set.records("val")


def test_one_coco_file_of_no_split_is_divided(tmp_path: Path) -> None:
    write(tmp_path / "export.json", coco_captions(*((i, "a photo") for i in range(40))))
    draw(tmp_path, *(f"photos/{i}.jpg" for i in range(40)))
    for root in (tmp_path, tmp_path / "export.json"):
        splits = found(reader_for(root))
        assert [len(records) for records in splits.values()] == [37, 3]


def validation(folder: Path, names: Iterable[str], share: float | None = None) -> set[int | str]:
    rows = "".join(f"{name},photo\n" for name in names)
    write(folder / "a.csv", f"file_name,caption\n{rows}")
    records = reader_for(folder / "a.csv", val_fraction=share).read().records("val")
    return {record.image_id for record in records}


def test_photos_keep_their_split_when_others_are_added(tmp_path: Path) -> None:
    names = [f"{number}.jpg" for number in range(1000)]
    every = validation(tmp_path, names)
    assert 170 <= len(every) <= 230
    for count in (60, 99, 100, 500):
        assert validation(tmp_path, names[:count]) == every.intersection(names[:count])
    assert len(validation(tmp_path, names[:2])) == 1
    assert len(validation(tmp_path, names[:99], 0.6)) > 40
    assert list(reader_for(tmp_path / "a.csv", val_fraction=0.0).read().splits) == ["train"]


PARTS = ("train", "test")
NO_VAL: dict[str, dict[str, Any]] = {
    "a folder for each split": {f"{part}/{n}.txt": "a dog" for n in "123" for part in PARTS},
    "a column of splits": {
        "captions.csv": "file_name,caption,split\n"
        + "".join(f"{part}/{n}.jpg,a dog,{part}\n" for n in "123" for part in PARTS)
    },
    "COCO's": {
        f"annotations/captions_{part}2017.json": coco_captions(*((n, "a dog") for n in (1, 2, 3)))
        for part in PARTS
    },
}


@pytest.mark.parametrize("layout", NO_VAL.values(), ids=NO_VAL.keys())
def test_without_val_a_share_of_train_is_validated(tmp_path: Path, layout: dict[str, Any]) -> None:
    for name, content in layout.items():
        write(tmp_path / name, content)
    draw(tmp_path, *(f"{part}/{n}.jpg" for n in "123" for part in PARTS))
    data_set = reader_for(tmp_path).read()
    sizes = {split: len(records) for split, records in data_set.splits.items()}
    assert sizes == {"train": 2, "val": 1, "test": 3}
    assert all("test" in record.image.parts for record in data_set.records("test"))
    assert list(reader_for(tmp_path, val_fraction=0.0).read().splits) == ["train", "test"]


def test_copies_of_a_photo_come_into_its_split(tmp_path: Path) -> None:
    names = [f"{number}.png" for number in range(40)]
    copies = [f"{number} (1).png" for number in range(20)]  # by their names
    others = [f"other {number}.png" for number in range(20, 40)]  # by their bytes
    series = [f"0 ({number}).png" for number in range(1, 41)]
    for shade, name in enumerate((*names, *copies, *series)):
        Image.new("L", (8, 6), shade).save(tmp_path / name)
    for name in others:
        shutil.copy(tmp_path / name.removeprefix("other "), tmp_path / name)
    before = validation(tmp_path, names)
    after = validation(tmp_path, [*names, *copies, *others])
    assert after.intersection(names) == before
    assert {re.sub(r"other | \(1\)", "", str(name)) for name in after} == before
    assert len(after) == 2 * len(before)
    assert len(validation(tmp_path, [*names, *series]).intersection(series)) in range(1, 20)


def test_files_of_one_exposure_come_into_one_split(tmp_path: Path) -> None:
    names = [f"IMG_{n}.{suffix}" for n in range(40) for suffix in ("HEIC", "jpg")]
    found = Counter(str(name).partition(".")[0] for name in validation(tmp_path, names))
    assert set(found.values()) == {2}
    assert 4 <= len(found) <= 12
