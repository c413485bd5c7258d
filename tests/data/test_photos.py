import itertools
import os
from pathlib import Path

import pytest

from captioning.data.photos import LONGEST_LINE, find_photos
from captioning.errors import InputError


def touched(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def test_a_folder_stands_for_its_images_in_sorted_order(tmp_path: Path) -> None:
    touched(tmp_path, "b.JPG", "a/2.png", "a/1.webp", "notes.txt", "._b.JPG", ".cache/c.png")
    names = [str(path.relative_to(tmp_path)) for path in find_photos([tmp_path])]
    assert names == ["a/1.webp", "a/2.png", "b.JPG"]


def test_the_order_is_that_of_sorted_paths(tmp_path: Path) -> None:
    touched(tmp_path, "b/1.jpg", "b.jpg", "b-.jpg", "b/c/9.jpg", "b/c.jpg", "B.jpg", "é.jpg")
    assert list(find_photos([tmp_path])) == sorted(tmp_path.rglob("*.jpg"))


def test_links_to_photos_are_followed_and_links_to_folders_are_not(
    tmp_path: Path,
) -> None:
    touched(tmp_path, "photos/1.jpg", "elsewhere/2.jpg")
    (tmp_path / "photos/round").symlink_to(tmp_path / "photos")
    (tmp_path / "photos/2.jpg").symlink_to(tmp_path / "elsewhere/2.jpg")
    (tmp_path / "photos/folder.jpg").mkdir()
    names = [path.name for path in find_photos([tmp_path / "photos"])]
    assert names == ["1.jpg", "2.jpg"]


def test_photos_come_one_after_another_also_of_endless_paths(tmp_path: Path) -> None:
    endless = (tmp_path / f"{number}.jpg" for number in itertools.count())
    photos = find_photos(endless)
    assert [path.name for path in itertools.islice(photos, 3)] == ["0.jpg", "1.jpg", "2.jpg"]
    assert next(endless).name == "3.jpg"


def test_a_list_is_read_a_line_at_a_time_and_its_photos_come_last(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("b.jpg\n\nwith space .jpg\r\na.jpg")
    names = [str(path) for path in find_photos(["c.jpg"], tmp_path / "list.txt")]
    assert names == ["c.jpg", "b.jpg", "with space .jpg", "a.jpg"]


def test_a_byte_order_mark_of_a_list_is_no_part_of_a_name(tmp_path: Path) -> None:
    (tmp_path / "list").write_bytes(b"\xef\xbb\xbfa.jpg\r\nb.jpg\r\n")
    assert list(find_photos([], tmp_path / "list")) == [Path("a.jpg"), Path("b.jpg")]


def test_names_that_are_no_utf8_come_through_a_list(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_bytes(b"caf\xe9.jpg\n")
    [photo] = find_photos([], tmp_path / "list.txt")
    assert os.fsencode(photo) == b"caf\xe9.jpg"


def test_a_folder_without_images_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no images in this folder"):
        list(find_photos([tmp_path]))


def test_a_list_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gone.txt: no such file"):
        list(find_photos([], tmp_path / "gone.txt"))


def test_a_folder_given_as_a_list_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="give a text file of one path a line"):
        list(find_photos([], tmp_path))


@pytest.mark.parametrize("line", [b"a" * (LONGEST_LINE + 1), b"a\0b.jpg"], ids=["long", "NUL"])
def test_an_impossible_line_is_named_by_its_number(tmp_path: Path, line: bytes) -> None:
    (tmp_path / "list.txt").write_bytes(b"a.jpg\n" + line + b"\nb.jpg\n")
    with pytest.raises(InputError, match=r"list\.txt: line 2 is not a path; give a text file"):
        list(find_photos([], tmp_path / "list.txt"))


def test_a_list_may_come_through_a_pipe() -> None:
    reader, writer = os.pipe()
    os.write(writer, b"a.jpg\nb.jpg\n")
    os.close(writer)
    try:
        assert [str(path) for path in find_photos([], f"/dev/fd/{reader}")] == ["a.jpg", "b.jpg"]
    finally:
        os.close(reader)
