"""Shards as the libraries write them, read without unpacking."""

import io
import json
import sys
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from captioning.data import photo_shards
from captioning.data.folder_check import check
from captioning.data.images import find_photos, read_image
from captioning.data.readers import PhotoShards, Reader, reader_for
from captioning.errors import InputError

CAPTIONS = ["a dark photo", "a grey photo", "a light photo", "a white photo"]


def photo(number: int) -> bytes:
    content = io.BytesIO()
    Image.new("RGB", (8, 6), (60 * number,) * 3).save(content, "PNG")
    return content.getvalue()


@pytest.fixture
def datasets() -> Any:
    return pytest.importorskip("datasets")


@pytest.fixture
def webdataset() -> Any:
    return pytest.importorskip("webdataset")


def table(datasets: Any, captions: list[Any], **columns: list[Any]) -> Any:
    """A data set of Hugging Face with a photo for each of the captions."""
    photos = [{"bytes": photo(number), "path": None} for number in range(len(captions))]
    made = datasets.Dataset.from_dict({"image": photos, "caption": captions, **columns})
    return made.cast_column("image", datasets.Image())


def img2dataset(webdataset: Any, file: Path, numbers: range) -> None:
    """A shard with what img2dataset writes beside it."""
    file.parent.mkdir(exist_ok=True)
    with webdataset.TarWriter(str(file)) as shard:
        for number in numbers:
            key, text = f"{number:09d}", CAPTIONS[number]
            data = {"caption": text, "url": f"https://a.example/{number}.jpg", "key": key}
            shard.write(
                {"__key__": key, "jpg": photo(number), "json": {**data, "error": None}, "txt": text}
            )
    file.with_name(f"{file.stem}_stats.json").write_text(json.dumps({"count": len(numbers)}))
    file.with_suffix(".parquet").write_bytes(b"PAR1, without photos")


def shades(reader: Reader) -> dict[int, tuple[str, tuple[str, ...]]]:
    """The split and captions of each photo, by its number; the photos are read."""
    return {
        shade(record.image) // 60: (split, record.captions)
        for split in reader.splits
        for record in reader.read(split)
    }


def test_what_save_to_disk_writes(tmp_path: Path, datasets: Any) -> None:
    made = table(datasets, [[text, "a photo"] for text in CAPTIONS])
    both = {"train": made.select([0, 2]), "validation": made.select([3])}
    datasets.DatasetDict(both).save_to_disk(tmp_path / "saved")
    reader = reader_for(tmp_path / "saved")
    assert isinstance(reader, PhotoShards)
    assert shades(reader) == {
        0: ("train", ("a dark photo", "a photo")),
        2: ("train", ("a light photo", "a photo")),
        3: ("val", ("a white photo", "a photo")),
    }
    made.save_to_disk(tmp_path / "single", num_shards=2)
    assert reader_for(tmp_path / "single").splits == ("train", "val")
    assert len(shades(PhotoShards(tmp_path / "single"))) == 4


def test_parquet_shards_as_the_hub_stores_them(tmp_path: Path, datasets: Any) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "README.md").write_text("---\nconfigs: []\n---\n")
    made = table(datasets, CAPTIONS, filename=["elsewhere.jpg"] * 4)
    for part in range(2):
        made.shard(2, part).to_parquet(tmp_path / f"data/train-0000{part}-of-00002.parquet")
    made.select([3]).to_parquet(tmp_path / "data/test-00000-of-00001.parquet")
    reader = reader_for(tmp_path)
    assert reader.splits == ("train", "test")
    train = reader.read("train")
    assert [record.captions for record in train] == [(text,) for text in CAPTIONS]
    assert [record.image_id for record in train][1:3] == [
        "data/train-00000-of-00002.parquet/1",
        "data/train-00001-of-00002.parquet/0",
    ]
    assert shades(reader)[3] == ("test", ("a white photo",))  # which is in train, too


def test_a_photo_stored_again_for_each_caption_is_one_photo(tmp_path: Path, datasets: Any) -> None:
    again = [photo(number) for number in (0, 0, 1, 2, 1)]
    captions = ["a dark photo", "a night", "a grey photo", "a light photo", "a fog"]
    made = datasets.Dataset.from_dict({"image": again, "caption": captions})
    made.to_parquet(tmp_path / "train-00000-of-00001.parquet")
    assert shades(PhotoShards(tmp_path, val_fraction=0.0)) == {
        0: ("train", ("a dark photo", "a night")),
        1: ("train", ("a grey photo", "a fog")),
        2: ("train", ("a light photo",)),
    }
    assert [path.name for path in find_photos([tmp_path])] == ["0", "2", "3"]


def test_shards_of_img2dataset(tmp_path: Path, webdataset: Any) -> None:
    img2dataset(webdataset, tmp_path / "00000.tar", range(3))
    img2dataset(webdataset, tmp_path / "00001.tar", range(3, 4))
    reader = reader_for(tmp_path)
    assert isinstance(reader, PhotoShards)
    assert {number: captions for number, (_, captions) in shades(reader).items()} == {
        number: (text,) for number, text in enumerate(CAPTIONS)
    }
    records = [record for split in reader.splits for record in reader.read(split)]
    assert "00001.tar/000000003.jpg" in {record.image_id for record in records}
    assert check(reader, progress=False).ok
    its = webdataset.tariterators
    with (tmp_path / "00000.tar").open("rb") as shard:
        files = ({**file, "__url__": ""} for file in its.tar_file_iterator(shard))
        theirs = list(its.group_by_keys(files))
    ours = PhotoShards(tmp_path / "00000.tar", val_fraction=0.0).read("train")
    assert [record.captions[0].encode() for record in ours] == [each["txt"] for each in theirs]
    for record, each in zip(ours, theirs, strict=True):
        with photo_shards.opened_photo(record.image) as file:
            assert file.read() == each["jpg"]


def shade(path: Path) -> int:
    return read_image(path).getpixel((0, 0))[0]  # type: ignore[index]


@pytest.fixture(params=["tar", "parquet"])
def photos(request: pytest.FixtureRequest, tmp_path: Path) -> list[Path]:
    """The paths of the photos in a shard."""
    shard = tmp_path / f"00000.{request.param}"
    if request.param == "tar":
        img2dataset(request.getfixturevalue("webdataset"), shard, range(4))
    else:
        table(request.getfixturevalue("datasets"), CAPTIONS).to_parquet(shard)
    return list(photo_shards.photos_in(shard))


def test_threads_read_photos_of_one_shard_at_once(photos: list[Path]) -> None:
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(shade, photos * 25)) == [0, 60, 120, 180] * 25
    sizes = [photo_shards.photo_size(path) for path in photos]
    assert sizes == [len(photo(number)) for number in range(4)]
    gone = photos[0].with_name("9999.jpg")
    assert photo_shards.photo_size(gone) is None
    with pytest.raises(InputError, match=rf"9999\.jpg: no such photo in {gone.parent.name}"):
        read_image(gone)


@pytest.mark.parametrize("name", ["00000.tar", "train-00000-of-00001.parquet", "data.arrow"])
def test_a_damaged_shard_is_named_in_one_line(
    tmp_path: Path, name: str, datasets: Any, webdataset: Any
) -> None:
    (tmp_path / name).write_bytes(b"not what the suffix says" * 100)
    with pytest.raises(InputError, match=rf"{name}: damaged or cut short"):
        reader_for(tmp_path).read("train")


def test_a_missing_library_is_named_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "a.arrow").touch()
    with pytest.raises(InputError, match=r"pip install 'captioning\[datasets\]'"):
        reader_for(tmp_path).read("train")


def test_a_member_above_the_shard_is_no_photo(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "00000.tar", "w") as shard:
        for name in ("../out.jpg", "/etc/in.jpg"):
            member = tarfile.TarInfo(name)
            member.size = len(photo(1))
            shard.addfile(member, io.BytesIO(photo(1)))
    found = photo_shards.photos_in(tmp_path / "00000.tar")
    assert list(found) == [tmp_path / "00000.tar/etc/in.jpg"]
