"""Data sets of Hugging Face, read by its library."""

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from pathlib import Path
from struct import pack
from typing import Any

import pytest
from PIL import Image

from captioning.data import photo_files
from captioning.data.folder_check import check
from captioning.data.images import find_photos, read_image
from captioning.data.photo_files import opened_photo, photo_hash, photo_size
from captioning.data.readers import HuggingFace, Joined, Reader, Sidecar, reader_for
from captioning.data.references import check_photos, read_references
from captioning.errors import InputError
from tests.conftest import draw_photos, image_file

CAPTIONS = ["a dark photo", "a grey photo", "a light photo", "a white photo"]


def photo(number: int) -> bytes:
    return image_file(Image.new("RGB", (8, 6), (60 * number,) * 3))


@pytest.fixture
def datasets() -> Any:
    return pytest.importorskip("datasets", reason="the extra datasets is not installed")


@pytest.fixture
def table(datasets: Any) -> Callable[..., Any]:
    """Makes a table of four photos, whose other columns are given."""

    def made(**columns: list[Any]) -> Any:
        photos = [{"bytes": photo(number), "path": None} for number in range(4)]
        rows = datasets.Dataset.from_dict({"image": photos, **columns})
        return rows.cast_column("image", datasets.Image())

    return made


def test_metadata_in_parquet_names_the_photos_of_its_folder(datasets: Any, tmp_path: Path) -> None:
    for split in ("train", "validation"):
        names = [f"{number}.png" for number in range(2)]
        columns = {"file_name": names, "text": ["a dog", None], "width": [8, 8]}
        (tmp_path / split).mkdir()
        datasets.Dataset.from_dict(columns).to_parquet(tmp_path / split / "metadata.parquet")
        for number, name in enumerate(names):
            (tmp_path / split / name).write_bytes(photo(number))
    data_set = reader_for(tmp_path).read()
    for split in ("train", "val"):
        [record] = data_set.records(split)  # the other one has no caption
        assert (record.image.name, record.captions) == ("0.png", ("a dog",))
        assert record.image.is_file()
    file = tmp_path / "train" / "metadata.parquet"
    assert len(reader_for(file, val_fraction=0.0).read().records("train")) == 1
    file.write_bytes(b"PAR1")
    with pytest.raises(InputError, match=r"metadata\.parquet: not read by the library datasets"):
        reader_for(file).read()


@pytest.fixture
def hub_folder(tmp_path: Path, table: Callable[..., Any]) -> Path:
    """A folder as the Hub has it, of two Parquet files to train on and one to validate on."""
    folder = tmp_path / "hub"
    (folder / "data").mkdir(parents=True)
    (folder / "README.md").write_text("---\nlicense: mit\n---\n")
    # Names of usual columns, as in tables of photos and captions.
    (folder / "dataset_infos.json").write_text('{"default": {"image": {}, "caption": {}}}')
    rows = table(caption=CAPTIONS, filename=["elsewhere.jpg"] * 4)
    for part in range(2):
        name = f"data/train-0000{part}-of-00002.parquet"
        rows.shard(2, part).to_parquet(folder / name)
    rows.select([3]).to_parquet(folder / "data/validation-00000-of-00001.parquet")
    return folder


def shade(path: Path) -> int:
    return read_image(path).getpixel((0, 0))[0] // 60  # type: ignore[index, operator]


def contents(reader: Reader) -> dict[str, tuple[int, tuple[str, ...]]]:
    """The photo, by its shade, and the captions of each row by its id; the photos are read."""
    return {
        str(record.image_id): (shade(record.image), record.captions)
        for records in reader.read().splits.values()
        for record in records
    }


def test_parquet_files_as_the_hub_has_them(hub_folder: Path) -> None:
    reader = reader_for(hub_folder)
    assert isinstance(reader, HuggingFace)
    assert list(reader.read().splits) == ["train", "validation"]
    assert contents(reader) == {
        **{f"train/{number}": (number, (text,)) for number, text in enumerate(CAPTIONS)},
        "validation/0": (3, ("a white photo",)),
    }
    assert reader.read().records("val") == reader.read().records("validation")
    assert not check(reader, progress=False).ok  # the last photo is in two splits
    [record] = reader.read().records("val")
    assert record.image == hub_folder / "validation/0"
    assert read_references(hub_folder).photos["validation/0"] == "validation/0"


def test_a_parquet_file_without_splits_is_divided(hub_folder: Path) -> None:
    file = hub_folder / "data/train-00000-of-00002.parquet"
    reader = reader_for(file)
    assert list(reader.read().splits) == ["train", "val"]
    assert contents(reader) == {"train/0": (0, ("a dark photo",)), "train/1": (1, (CAPTIONS[1],))}
    assert check(reader, progress=False).ok


def test_what_save_to_disk_writes(tmp_path: Path, datasets: Any, table: Callable[..., Any]) -> None:
    rows = table(caption=[[text, "a photo"] for text in CAPTIONS])
    splits = {"train": rows.select([0, 2]), "dev": rows.select([3]), "extra": rows.select([1])}
    datasets.DatasetDict(splits).save_to_disk(tmp_path / "saved")
    reader = reader_for(tmp_path / "saved")
    assert list(reader.read().splits) == ["train", "dev", "extra"]
    assert contents(reader) == {
        "train/0": (0, ("a dark photo", "a photo")),
        "train/1": (2, ("a light photo", "a photo")),
        "dev/0": (3, ("a white photo", "a photo")),
        "extra/0": (1, ("a grey photo", "a photo")),
    }
    rows.save_to_disk(tmp_path / "single", num_shards=2)
    assert list(reader_for(tmp_path / "single").read().splits) == ["train", "val"]
    assert len(contents(HuggingFace(tmp_path / "single"))) == 4


@pytest.mark.parametrize(
    "columns",
    [
        {"caption_0": ["a"] * 4, "caption_1": ["b", "b", None, "b"]},
        {"sentences": [[{"raw": "a", "id": 1}, {"raw": "b", "id": 2}]] * 4, "title": ["x"] * 4},
        {"caption": ['["a", "b"]'] * 4, "label": [1] * 4},
    ],
    ids=["numbered columns", "a list of objects", "a list as text"],
)
def test_several_captions_of_a_row(
    tmp_path: Path, table: Callable[..., Any], columns: dict[str, list[Any]]
) -> None:
    table(**columns).to_parquet(tmp_path / "train.parquet")
    captions = [texts for _, texts in contents(HuggingFace(tmp_path, 0.0)).values()]
    assert captions[0] == captions[1] == captions[3] == ("a", "b")


def test_columns_are_named_and_assign_splits(tmp_path: Path, table: Callable[..., Any]) -> None:
    splits = ["train", "restval", "val", "test"]
    rows = table(headline=CAPTIONS, story=[text.upper() for text in CAPTIONS], split=splits)
    rows.to_parquet(tmp_path / "test.parquet")
    with pytest.raises(InputError, match="with the columns headline, story, split, image: none"):
        reader_for(tmp_path).read().records("train")
    reader = reader_for(tmp_path, caption_column="story")
    assert [record.image_id for record in reader.read().records("train")] == ["test/0", "test/1"]
    assert contents(reader)["test/3"] == (3, ("A WHITE PHOTO",))


def test_the_photos_may_be_of_a_named_column(tmp_path: Path, datasets: Any) -> None:
    by_column = {
        name: [{"bytes": photo(number), "path": None} for number in numbers]
        for name, numbers in {"before": (0, 1, 2), "after": (3, 2, 1)}.items()
    }
    rows = datasets.Dataset.from_dict({**by_column, "caption": CAPTIONS[:3]})
    for column in by_column:
        rows = rows.cast_column(column, datasets.Image())
    rows.to_parquet(tmp_path / "pairs.parquet")
    reader = reader_for(tmp_path, photo_column="after")
    assert contents(reader) == {
        f"train/{number}:after": (3 - number, (CAPTIONS[number],)) for number in range(3)
    }
    assert [shade for shade, _ in contents(reader_for(tmp_path)).values()] == [0, 1, 2]
    with pytest.raises(InputError, match="photos are in before, after, none is called 'caption'"):
        reader_for(tmp_path, photo_column="caption").read().records("train")
    with pytest.raises(InputError, match=r"train/1:then: no photo in this row"):
        read_image(tmp_path / "train/1:then")


def test_bytes_without_a_type_and_paths_of_photos(tmp_path: Path, datasets: Any) -> None:
    draw_photos(tmp_path, "one.png")
    image = [photo(1), None]
    rows = datasets.Dataset.from_dict({"jpg": image, "txt": ["a", "b"], "number": [1, 2]})
    rows.to_parquet(tmp_path / "bytes.parquet")
    first, second = HuggingFace(tmp_path / "bytes.parquet", 0.0).read().records("train")
    assert shade(first.image) == 1
    assert (photo_size(second.image), photo_hash(second.image)) == (None, None)
    with pytest.raises(InputError, match=r"train/1: no photo in this row"):
        read_image(second.image)
    with pytest.raises(InputError, match=r"train/2: no photo in this row"):
        read_image(second.image.with_name("2"))
    paths = datasets.Dataset.from_dict({"image": [str(tmp_path / "one.png")], "text": ["a wall"]})
    paths.cast_column("image", datasets.Image()).save_to_disk(tmp_path / "paths")
    [record] = HuggingFace(tmp_path / "paths", 0.0).read().records("train")
    assert photo_hash(record.image) == photo_hash(tmp_path / "one.png")


def test_threads_read_rows_at_once_by_any_path(
    hub_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(hub_folder.parent)
    photos = [record.image for record in reader_for("hub").read().records("train")]
    assert photos[0] == Path("hub/train/0")
    photos += [photo.absolute() for photo in photos]
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(shade, photos * 25)) == [0, 1, 2, 3] * 50
    assert [photo_size(path) for path in photos[:4]] == [len(photo(n)) for n in range(4)]
    with opened_photo(photos[2]) as file:
        assert file.read() == photo(2)
    check_photos(dict(enumerate(photos)))


def test_a_photo_whose_name_is_a_number_is_a_file(hub_folder: Path) -> None:
    (hub_folder / "train").mkdir()
    (hub_folder / "train/1").write_bytes(photo(3))
    assert shade(hub_folder / "train/1") == 3
    with pytest.raises(InputError, match="no such file"):
        read_image(hub_folder.parent / "elsewhere/train/1")


def test_splits_of_other_names_are_joined(hub_folder: Path, tmp_path: Path) -> None:
    draw_photos(tmp_path / "own", "train/0.jpg", "val/1.jpg")
    for photo in (tmp_path / "own").glob("*/*.jpg"):
        photo.with_suffix(".txt").write_text("a wall")
    joined = Joined([Sidecar(tmp_path / "own"), HuggingFace(hub_folder)])
    assert list(joined.read().splits) == ["train", "val"]
    assert {record.image_id for record in joined.read().records("val")} == {
        "own/val/1.jpg",
        "hub/validation/0",
    }


def test_faults_are_one_line_that_names_the_data_set(
    tmp_path: Path, datasets: Any, hub_folder: Path
) -> None:
    file = tmp_path / "a.parquet"
    file.write_bytes(b"not what the suffix says" * 100)
    with pytest.raises(InputError, match=r"a\.parquet: not read by the library datasets: "):
        reader_for(file).read().records("train")
    datasets.Dataset.from_dict({"text": ["a"]}).to_parquet(tmp_path / "b.parquet")
    with pytest.raises(InputError, match="no column of photos; its columns are text"):
        reader_for(tmp_path / "b.parquet").read().records("train")
    with pytest.raises(InputError, match="has its photos inside; omit the folder of the images"):
        reader_for(hub_folder, images=tmp_path)


def test_a_missing_library_is_named_with_its_extra_and_files_do_without(
    hub_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    draw_photos(tmp_path / "own", "1.jpg", "2.jpg")
    (tmp_path / "own/captions.csv").write_text("file_name,caption\n1.jpg,a wall\n2.jpg,a door\n")
    assert check(reader_for(tmp_path / "own"), progress=False).ok
    with pytest.raises(InputError, match=r"pip install 'captioning\[datasets\]'"):
        reader_for(hub_folder).read().records("train")


def test_a_readme_does_not_say_what_is_read(hub_folder: Path) -> None:
    there = "configs:\n- config_name: default\n  data_files: https://host.example/train.parquet\n"
    (hub_folder / "README.md").write_text(f"---\n{there}---\n")
    assert list(reader_for(hub_folder).read().splits) == ["train", "validation"]


def test_of_several_data_sets_in_a_folder_one_is_to_be_given(
    tmp_path: Path, table: Callable[..., Any]
) -> None:
    for language in ("de", "en"):
        (tmp_path / language).mkdir()
        table(caption=CAPTIONS).to_parquet(tmp_path / language / "train-00000-of-00001.parquet")
    with pytest.raises(InputError, match=r"train is in .*de and .*en; give one of them"):
        reader_for(tmp_path).read().records("train")
    assert len(contents(reader_for(tmp_path / "en"))) == len(CAPTIONS)


def test_rows_of_parquet_are_captioned_in_python(hub_folder: Path) -> None:
    file = hub_folder / "data/train-00000-of-00002.parquet"
    with pytest.raises(InputError, match=r"captioner\.stream\(rows\)"):
        list(find_photos([hub_folder]))
    with pytest.raises(InputError, match=r"parquet: .* captioner\.stream\(rows\)"):
        read_image(file)


def test_offsets_beyond_a_damaged_file_do_not_end_the_process(
    table: Callable[..., Any], tmp_path: Path
) -> None:
    table(caption=CAPTIONS).save_to_disk(tmp_path)
    [file] = tmp_path.glob("*.arrow")
    ends = [*accumulate(map(len, CAPTIONS), initial=0)]
    whole, damaged = (pack("<5i", *ends[:2], end, *ends[3:]) for end in (ends[2], 2**30))
    content = file.read_bytes()
    assert content.count(whole) == 1
    file.write_bytes(content.replace(whole, damaged))
    with pytest.raises(InputError, match=f"{tmp_path}: not read by the library datasets"):
        reader_for(tmp_path).read().records("train")


def test_rows_of_too_much_text_are_refused_before_they_are_read(
    hub_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(photo_files, "MAX_BYTES", 60)
    with pytest.raises(InputError, match=f"{hub_folder}: .* more than 60 bytes of text"):
        reader_for(hub_folder).read().records("train")
