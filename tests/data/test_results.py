from pathlib import Path
from typing import Any

import pytest

from captioning.data.references import (
    References,
    check_photos,
    image_finder,
    named_photos,
    read_references,
    scored_captions,
)
from captioning.errors import InputError
from tests.data.conftest import coco_captions, touch, write
from tests.data.test_layouts import karpathy


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("coco.json", coco_captions((1, "a dog"), (2, "a cat")), {1: "1.jpg", 2: "2.jpg"}),
        (
            "karpathy.json",
            {"images": [karpathy("val", n, filepath="val2014") for n in (1, 3)]},
            {1: "1.jpg", 3: "val2014/3.jpg"},
        ),
        (
            "Flickr8k.token.txt",
            "1.jpg#0\tA dog .\n2.jpg#0\tA cat .\n",
            {"1": "1.jpg", "2": "2.jpg"},
        ),
    ],
)
def test_references_name_the_photo_of_each_image(
    tmp_path: Path, name: str, content: Any, expected: dict[int | str, str]
) -> None:
    photos = tmp_path / "photos"
    touch(photos, "1.jpg", "2.jpg", "val2014/3.jpg")
    write(tmp_path / name, content)
    references = read_references(tmp_path / name)
    found = named_photos(references, photos, expected)
    assert found == {image: photos / photo for image, photo in expected.items()}
    with pytest.raises(InputError, match="name no photo of image 9"):
        named_photos(references, photos, [9])
    with pytest.raises(InputError, match="gone: no such folder; give the folder of the photos"):
        named_photos(references, tmp_path / "gone", expected)


def test_missing_photos_are_counted(tmp_path: Path) -> None:
    touch(tmp_path, "a.jpg")
    with pytest.raises(InputError, match=r"x\.jpg: no such photo \(2 of 3 are missing\); check"):
        check_photos(dict(enumerate(tmp_path / name for name in ("a.jpg", "x.jpg", "y" * 300))))


def test_ids_of_results_match_numbers_or_text() -> None:
    references = References({1: ("a dog",), "0002": ("a cat",)}, {})
    captions: dict[int | str, str] = {"1": "a dog", 2: "a cat"}
    assert scored_captions(captions, references, "r.json", "") == {1: "a dog", "0002": "a cat"}
    with pytest.raises(InputError, match=r"r\.json: image 1 has two captions"):
        scored_captions({"1": "a dog", 1: "a cat"}, references, "r.json", "")


def test_of_photos_of_one_name_the_longest_common_path_counts() -> None:
    find = image_finder([1, "k"], {1: "a/x.jpg", "k": "b/x.jpg"})
    assert [find(name) for name in ("a/x.jpg", "c/b/x.jpg", "x.jpg")] == [1, "k", None]
