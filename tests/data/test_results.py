import json
from pathlib import Path
from typing import Any

import pytest

from captioning.data.references import image_finder, with_ids_of
from captioning.data.results import check_photos, named_photos
from captioning.errors import InputError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a.jpg", "b.jpg", "val2014/c.jpg"):
        (tmp_path / "photos" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "photos" / name).touch()
    return tmp_path / "photos"


def written(folder: Path, content: Any) -> Path:
    path = folder.parent / "references.json"
    path.write_text(json.dumps(content))
    return path


def test_coco_names_the_photo_of_each_image(folder: Path) -> None:
    images = [{"id": 7, "file_name": "a.jpg"}, {"id": 8, "file_name": "b.jpg"}]
    references = written(folder, {"images": images, "annotations": []})
    assert named_photos(references, folder, [8]) == {8: folder / "b.jpg"}
    assert named_photos(references, folder, ["7"]) == {"7": folder / "a.jpg"}


def test_karpathy_s_folders_of_splits_may_be_there_or_not(folder: Path) -> None:
    images = [
        {"cocoid": 1, "filepath": "val2014", "filename": "c.jpg"},
        {"cocoid": 2, "filepath": "val2014", "filename": "a.jpg"},
        {"imgid": 3, "filename": "b.jpg"},
    ]
    found = named_photos(written(folder, {"images": images}), folder, [1, 2, 3])
    assert [found[image] for image in (1, 2, 3)] == [
        folder / "val2014/c.jpg",
        folder / "a.jpg",
        folder / "b.jpg",
    ]


def test_images_of_flickr8k_are_named_as_their_photos(folder: Path) -> None:
    found = named_photos(folder.parent / "Flickr8k.token.txt", folder, ["a.jpg", "b"])
    assert found == {"a.jpg": folder / "a.jpg", "b": folder / "b.jpg"}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"annotations": []}, "has no 'images'; expected COCO's annotations"),
        ({"annotations": [], "images": [{"id": 1}]}, "has no 'file_name'; expected COCO's"),
        ({"annotations": [], "images": []}, "no photo of image 1 is named; expected COCO's"),
        ({"images": [{"cocoid": 1}]}, "has no 'filename'; expected COCO's"),
    ],
)
def test_references_that_name_no_photo_are_one_line(
    folder: Path, content: Any, expected: str
) -> None:
    with pytest.raises(InputError) as error:
        named_photos(written(folder, content), folder, [1])
    assert expected in str(error.value)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="photos: no such folder; give the folder of the photos"):
        named_photos("references.json", tmp_path / "photos", [1])


def test_missing_photos_are_counted(folder: Path) -> None:
    check_photos({1: folder / "a.jpg"})
    with pytest.raises(InputError, match=r"x\.jpg: no such photo \(2 of 3 are missing\); check"):
        check_photos({1: folder / "a.jpg", 2: folder / "x.jpg", 3: folder / ("y" * 300)})


def test_ids_of_results_match_those_of_references_whether_numbers_or_text() -> None:
    captions: dict[int | str, str] = {"1": "a dog", 2: "a cat", "x": "a bird"}
    expected: dict[int | str, str] = {1: "a dog", "0002": "a cat", "x": "a bird"}
    assert with_ids_of(captions, [1, "0002"], "results.json") == expected


def test_of_photos_of_one_name_the_longest_common_path_counts() -> None:
    find = image_finder([1, "k"], {1: "a/x.jpg", "k": "b/x.jpg"})
    assert [find(name) for name in ("a/x.jpg", "c/b/x.jpg", "x.jpg")] == [1, "k", None]


def test_two_captions_of_ids_that_match_are_an_error() -> None:
    with pytest.raises(InputError, match=r"results\.json: image 1 has two captions"):
        with_ids_of({"1": "a dog", 1: "a cat"}, [1], "results.json")
