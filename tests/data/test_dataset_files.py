from pathlib import Path

import pytest

from captioning.data.readers.dataset_files import find_images
from captioning.errors import InputError
from tests.data.conftest import touch

SOURCE = Path("list.json")


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("train2017\\a.jpg", "train2017/a.jpg"),
        ("C:\\Users\\me\\photos\\a.jpg", "a.jpg"),
        ("/home/somebody/coco/train2017/a.jpg", "train2017/a.jpg"),
        ("a.jpg", "deep/down/a.jpg"),
        ("photos/a.jpg", "a.jpg"),
        ("photos/a", "train/a.jpg"),
    ],
)
def test_paths_of_another_machine_are_found_by_their_ends(
    tmp_path: Path, name: str, file: str
) -> None:
    touch(tmp_path, file, "other/b.jpg", "a.txt")
    assert find_images([name], [tmp_path], SOURCE) == [tmp_path / file]


def test_the_first_folder_that_has_a_name_has_them_all(tmp_path: Path) -> None:
    touch(tmp_path, "one/x/b.jpg", "two/a.jpg", "two/B.jpg")
    folders = [tmp_path / "none", tmp_path / "one", tmp_path / "two"]
    names = ["a.jpg", "b.jpg", "c.jpg"]
    assert find_images(names, folders, SOURCE) == [tmp_path / "two" / name for name in names]


def test_the_longest_common_end_of_the_paths_decides(tmp_path: Path) -> None:
    touch(tmp_path, "cats/1.jpg", "dogs/1.jpg")
    names = ["/data/dogs/1.jpg", "/data/cats/1.jpg"]
    found = find_images(names, [tmp_path], SOURCE)
    assert found == [tmp_path / "dogs/1.jpg", tmp_path / "cats/1.jpg"]


@pytest.mark.parametrize(
    ("names", "files"),
    [
        (["1.jpg"], ["cats/1.jpg", "dogs/1.jpg"]),
        (["one/1.jpg", "two/1.jpg"], ["three/1.jpg"]),
        (["1"], ["1.jpg", "1.png"]),
        (["A.JPG 1"], ["a.jpg"]),
        (["CAFÉ 1.jpg"], ["café 1.jpg"]),
    ],
)
def test_what_is_not_found_is_an_error_that_names_one_path(
    tmp_path: Path, names: list[str], files: list[str]
) -> None:
    touch(tmp_path, *files)
    with pytest.raises(InputError, match=r"none of its images is in .*looked for .*1.*--images"):
        find_images(names, [tmp_path], SOURCE)


def test_folders_of_other_splits_are_not_searched(tmp_path: Path) -> None:
    touch(tmp_path, "val2017/1.jpg")
    with pytest.raises(InputError, match="none of its images"):
        find_images(["1.jpg"], [tmp_path], SOURCE, split="train")
    assert find_images(["1.jpg"], [tmp_path], SOURCE, split="val") == [tmp_path / "val2017/1.jpg"]
