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
from tests.data.conftest import draw, write


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    draw(tmp_path / "photos", "a.jpg", "b.jpg", "val2014/c.jpg")
    return tmp_path / "photos"


SENTENCES = [{"raw": "a dog"}]
REFERENCES: dict[str, Any] = {
    "coco.json": {
        "images": [{"id": 1, "file_name": "a.jpg"}, {"id": 2, "file_name": "b.jpg"}],
        "annotations": [{"image_id": image, "caption": "a dog"} for image in (1, 2)],
    },
    "karpathy.json": {
        "images": [
            {"cocoid": 1, "filepath": "val2014", "filename": "c.jpg", "sentences": SENTENCES},
            {"cocoid": 2, "filepath": "val2014", "filename": "a.jpg", "sentences": SENTENCES},
        ]
    },
    "Flickr8k.token.txt": "a.jpg#0\tA dog .\nb.jpg#0\tA cat .\n",
}


@pytest.mark.parametrize(
    ("name", "images", "photos"),
    [
        ("coco.json", (1, 2), ("a.jpg", "b.jpg")),
        ("karpathy.json", (1, 2), ("val2014/c.jpg", "a.jpg")),
        ("Flickr8k.token.txt", ("a", "b"), ("a.jpg", "b.jpg")),
    ],
)
def test_references_name_the_photo_of_each_image(
    folder: Path, name: str, images: tuple[int | str, ...], photos: tuple[str, ...]
) -> None:
    write(folder / name, REFERENCES[name])
    references = read_references(folder / name)
    found = named_photos(references, folder, images)
    assert found == {i: folder / photo for i, photo in zip(images, photos, strict=True)}
    with pytest.raises(InputError, match="name no photo of image 9"):
        named_photos(references, folder, [9])
    with pytest.raises(InputError, match="gone: no such folder; give the folder of the photos"):
        named_photos(references, folder / "gone", images)


def test_missing_photos_are_counted(folder: Path) -> None:
    with pytest.raises(InputError, match=r"x\.jpg: no such photo \(2 of 3 are missing\); check"):
        check_photos({1: folder / "a.jpg", 2: folder / "x.jpg", 3: folder / ("y" * 300)})


def test_ids_of_results_match_numbers_or_text() -> None:
    references = References({1: ("a dog",), "0002": ("a cat",)}, {})
    captions: dict[int | str, str] = {"1": "a dog", 2: "a cat"}
    assert scored_captions(captions, references, "r.json", "") == {1: "a dog", "0002": "a cat"}
    with pytest.raises(InputError, match=r"r\.json: image 1 has two captions"):
        scored_captions({"1": "a dog", 1: "a cat"}, references, "r.json", "")


def test_of_photos_of_one_name_the_longest_common_path_counts() -> None:
    find = image_finder([1, "k"], {1: "a/x.jpg", "k": "b/x.jpg"})
    assert [find(name) for name in ("a/x.jpg", "c/b/x.jpg", "x.jpg")] == [1, "k", None]
