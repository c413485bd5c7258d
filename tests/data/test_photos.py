import contextlib
import os
import sys
from pathlib import Path

import pytest
from PIL import Image

from captioning.data.images import find_photos, read_image
from captioning.data.readers.table import _photos_with_texts
from captioning.errors import InputError
from tests.data.conftest import touch


def test_the_order_is_that_of_sorted_paths(tmp_path: Path) -> None:
    touch(tmp_path, "b/1.jpg", "b.jpg", "b-.jpg", "b/c/9.jpg", "b/c.jpg", "B.jpg", "é.jpg")
    assert list(find_photos([tmp_path])) == sorted(tmp_path.rglob("*.jpg"))


def test_links_are_followed_once_and_named_if_they_lead_nowhere(tmp_path: Path) -> None:
    touch(tmp_path, "photos/1.jpg", "photos/1.txt", "more/3.jpg", "elsewhere/2.jpg")
    links = {"2.jpg": "elsewhere/2.jpg", "round": "photos", "more": "more", "loop.jpg": "loop.jpg"}
    for link, target in (links | {"gone": "not mounted", "more/back": "."}).items():
        (tmp_path / "photos" / link).symlink_to(tmp_path / target)
    (tmp_path / "photos/folder.jpg").mkdir()
    names = ["1.jpg", "2.jpg", "gone", "loop.jpg", "more/3.jpg", "more/back/elsewhere/2.jpg"]
    found = [path.relative_to(tmp_path / "photos") for path in find_photos([tmp_path / "photos"])]
    assert [path.as_posix() for path in found] == names
    assert [photo.name for photo, _ in _photos_with_texts(tmp_path / "photos")][-2:] == [
        "3.jpg",
        "2.jpg",
    ]


@pytest.mark.parametrize("listed", [None, "-", "list.txt"])
def test_the_photos_of_a_list_or_of_standard_input_come_last(
    listed: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("list.txt").write_text("b.jpg\n\nwith space .jpg\r\na.jpg")
    with Path("list.txt").open() as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        found = find_photos(["c.jpg"] if listed else ["c.jpg", "-"], listed)
        assert [*map(str, found)] == ["c.jpg", "b.jpg", "with space .jpg", "a.jpg"]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *(("x.avif", "AVIF"), ("x.jp2", "JPEG2000"), ("x.mpo", "MPO"), ("x.dib", "DIB")),
        *(("x.apng", "PNG"), ("x.pnm", "PPM"), ("photo.jpg?width=640", "JPEG")),
    ],
)
def test_a_folder_gives_photos_of_every_format_that_is_read(
    tmp_path: Path, name: str, kind: str
) -> None:
    photo = Image.effect_noise((40, 30), 50).convert("RGB")
    photo.save(tmp_path / name, kind, save_all=kind == "MPO")
    assert list(find_photos([tmp_path])) == [tmp_path / name]
    assert read_image(tmp_path / name).size == (40, 30)


def test_files_that_look_like_photos_are_never_left_out_in_silence(tmp_path: Path) -> None:
    touch(tmp_path, *(f"a.{suffix}" for suffix in ("jxl", "tga", "ico", "sgi", "psd", "svg")))
    touch(tmp_path, "b.RWL", "c/10.11.12.jpeg")
    os.mkfifo(tmp_path / "pipe.jpg")
    deep = tmp_path / "deep"
    with contextlib.chdir(tmp_path):  # a folder that cannot be read, since its path is too long
        for folder in ("deep", *["x" * 250] * 17):
            Path(folder).mkdir()
            os.chdir(folder)
    found = list(find_photos([tmp_path]))
    assert {*tmp_path.glob("*.*"), tmp_path / "c/10.11.12.jpeg"} <= {*found}
    [unreadable] = (path for path in found if path.is_relative_to(deep))
    for path, reason in ((unreadable, "name too long"), (tmp_path / "pipe.jpg", "not a regular")):
        with pytest.raises(InputError, match=reason):
            read_image(path)


def test_thumbnails_and_deleted_photos_of_a_disk_are_no_photos(tmp_path: Path) -> None:
    touch(tmp_path, "a.jpg", "@eaDir/a.jpg/SYNOPHOTO_THUMB_M.jpg", "#recycle/b.jpg")
    touch(tmp_path, ".thumbnails/c.jpg", "$RECYCLE.BIN/d.jpg", "#summer/e.jpg", "__MACOSX/f.jpg")
    names = ["#summer/e.jpg", "a.jpg"]
    assert [path.relative_to(tmp_path).as_posix() for path in find_photos([tmp_path])] == names
    assert {photo for photo, _ in _photos_with_texts(tmp_path)} == {
        tmp_path / name for name in names
    }


def test_a_raw_file_beside_a_photo_of_its_name_is_that_photo(tmp_path: Path) -> None:
    touch(tmp_path, "IMG_1.CR3", "IMG_1.JPG", "IMG_1.txt", "2.dng", "2.HEIC", "2.jpg", "2.HEIC.txt")
    touch(tmp_path, "3.nef", "4.arw", "more/4.jpg")
    photos = [tmp_path / name for name in ("2.HEIC", "2.jpg", "3.nef", "4.arw", "IMG_1.JPG")]
    assert list(find_photos([tmp_path])) == [*photos, tmp_path / "more/4.jpg"]
    texts = {
        photo.name: [path.name for path in paths] for photo, paths in _photos_with_texts(tmp_path)
    }
    assert texts == {"2.HEIC": ["2.HEIC.txt"], "IMG_1.JPG": ["IMG_1.txt"]} | {
        name: [] for name in ("3.nef", "4.arw", "4.jpg", "2.jpg")
    }


def test_a_pattern_stands_for_its_matches_if_it_is_no_name(tmp_path: Path) -> None:
    touch(tmp_path, "b.jpg", "a.jpg", "c.png", "more/d.jpg", "more/a[1].jpg", "more/a1.jpg")
    patterns = "*.jpg", "**/d.*", "more/a[1].jpg", "gone[1].jpg"
    found = find_photos([str(tmp_path / pattern) for pattern in patterns])
    assert [path.name for path in found] == ["a.jpg", "b.jpg", "d.jpg", "a[1].jpg", "gone[1].jpg"]
