"""What is no data set, no photo and no list of photos: one line, which names it."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from captioning.data.images import find_photos, read_image
from captioning.data.readers import reader_for
from captioning.errors import InputError
from tests.conftest import image_file
from tests.data.conftest import coco_captions, draw, write
from tests.data.test_layouts import karpathy


def data_set(path: Path, **options: Any) -> None:
    """Read the first split."""
    data_set = reader_for(path, **options).read()
    data_set.records(next(iter(data_set.splits), "val"))


def photos(path: Path) -> None:
    list(find_photos([path]))


def listed(path: Path) -> None:
    list(find_photos([], path))


def cut(kind: str) -> bytes:
    """The beginning of a photo's file."""
    return image_file(Image.effect_noise((64, 64), 50), kind)[:1000]


ROWS, ANNOTATIONS = "image,caption\na.jpg,x\n", "annotations/captions_val.json"
THREE_COLUMNS = {"t.csv": "image,Title,Long text\na.jpg,a dog,a dog on a beach\n"}
TWO_LAYOUTS = {f"dataset_{i}.json": {"images": [karpathy("val", i)]} for i in (1, 2)}
ASKS = '{"image": "a.jpg", "prefix": "detect dog", "suffix": "<loc0001> dog"}'
TAR = dict.fromkeys(("00000.tar", "00000.parquet"), "0" * 10)  # as img2dataset writes them

Read = Callable[[Path], object]

REFUSALS: list[tuple[Read, str, dict[str, Any], str]] = [
    (data_set, ".", {}, "unknown layout"),
    (data_set, "absent", {}, "absent: no such file or folder"),
    (data_set, "val/1.jpg", {}, "a photo, not a data set"),
    (data_set, ".", {"a.csv": ROWS, "b.csv": ROWS}, "a.csv, b.csv"),
    (data_set, ".", TWO_LAYOUTS, "path of one"),
    (data_set, ". 00000.tar", TAR, "unpack tar files (tar -xf)"),
    # Columns.
    (data_set, ".", {"captions.csv": "when,caption\n1999,b\n"}, "columns when, caption"),
    (data_set, ".", {"t.csv": "file_name,words\na.jpg,a dog\n"}, "columns file_name, words"),
    (data_set, ".", {"t.csv": "file_name,text,raw\na.jpg,b,c\n"}, "text, raw: several"),
    (data_set, ".", {"t.csv": "image,en_caption,de_caption\na.jpg,b,c\n"}, "several"),
    (data_set, ".", THREE_COLUMNS, "columns image, Title, Long text"),
    (partial(data_set, caption_column="words"), ".", THREE_COLUMNS, "'words'"),
    (partial(data_set, caption_column="caption"), ".", {ANNOTATIONS: {}}, "Coco"),
    # Files that cannot be read.
    (data_set, ". t.csv", {"t.csv": 'file_name,caption\na.jpg,"a dog\n'}, "line 2: not CSV"),
    (data_set, ". t.csv", {"t.csv": "file_name,caption\na.jpg,caf\udce9\n"}, "UTF-8"),
    (data_set, ". t.xlsx", {"t.xlsx": "PK"}, "t.xlsx: a spreadsheet"),
    (data_set, ". t.ods", {"t.ods": "PK"}, "t.ods: a spreadsheet"),
    (data_set, ". t.jsonl", {"t.jsonl": ASKS}, "line 1: prefix 'detect dog'"),
    (data_set, ". t.json", {"t.json": '{"a": 3}'}, "unknown layout"),
    (data_set, ".", {ANNOTATIONS: {"images": []}}, "not COCO's captions"),
    # Without captions.
    (data_set, ".", {ANNOTATIONS: coco_captions((1, " "))}, "'val' has no captions"),
    (partial(data_set, captions_from="iptc"), ".", {}, "no captions; its photos carry none"),
    # Photos.
    (photos, "empty", {"empty/a.txt": ""}, "empty: no images in this folder"),
    (photos, "empty", {"empty/0.tar": ""}, "unpack tar files"),
    (listed, "gone.txt", {}, "gone.txt: no such file"),
    (listed, ".", {}, "is a directory"),
    (read_image, "0.tar", {"0.tar": "0" * 10}, "0.tar: not an image"),
    (read_image, ".", {}, "not a regular file"),
    (read_image, "a.jpg", {"a.jpg": ""}, "a.jpg: empty file"),
    (read_image, "a.jpg", {"a.jpg": "<html>not found</html>"}, "a.jpg: not an image"),
    (read_image, "a.jpg", {"a.jpg": cut("JPEG")}, "a.jpg: damaged or cut short"),
    (read_image, "a.jpg", {"a.jpg": cut("PNG")}, "a.jpg: damaged or cut short"),
]
"""How paths are read, the files beside a photo val/1.jpg, and what the line names."""


@pytest.mark.parametrize(
    ("read", "names", "files", "named"), REFUSALS, ids=[named for *_, named in REFUSALS]
)
def test_what_cannot_be_read_is_one_line(
    tmp_path: Path, read: Read, names: str, files: dict[str, Any], named: str
) -> None:
    draw(tmp_path, "val/1.jpg")
    for file, content in files.items():
        write(tmp_path / file, content)
    for name in names.split():
        with pytest.raises(InputError) as error:
            read(tmp_path / name)
        assert str(error.value).startswith(str(tmp_path))
        assert named in str(error.value)
