import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from captioning.data.folder_check import Check, check
from captioning.data.readers import Coco


def photo(path: Path, shade: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (8, 6), shade).save(path)


def write(root: Path, split: str, images: list[int], captions: list[tuple[int, str]]) -> None:
    """One split of a COCO data set, its photos included."""
    content: dict[str, Any] = {
        "images": [{"id": image, "file_name": f"{image}.png"} for image in images],
        "annotations": [{"image_id": image, "caption": caption} for image, caption in captions],
    }
    (root / "annotations").mkdir(exist_ok=True)
    (root / f"annotations/captions_{split}.json").write_text(json.dumps(content))
    for image in images:
        photo(root / split / f"{image}.png", image)


@pytest.fixture
def coco(tmp_path: Path) -> Path:
    write(tmp_path, "train", [1, 2], [(1, "a cat"), (1, "one cat"), (2, "a dog"), (1, "cat")])
    write(tmp_path, "val", [3], [(3, "a bird")])
    return tmp_path


def problems(result: Check) -> dict[str, list[str]]:
    """The names of the problems by kind."""
    found: dict[str, list[str]] = {}
    for split in result.splits.values():
        for problem in split.problems:
            found.setdefault(problem.kind, []).append(problem.name)
    return found


def test_a_sound_data_set_is_counted_and_ok(coco: Path) -> None:
    result = check(Coco(coco), progress=False)
    assert result.ok
    lines = [" ".join(line.split()) for line in str(result).splitlines()[2:]]
    lengths = "words of a caption: 1.8 on average, at most 2 in 99 of 100, 2 in the longest"
    counts = ["train 2 4 1 / 2.0 / 3 0", "val 1 1 1 / 1.0 / 1 0"]
    assert lines == [*counts, lengths, "No problems found"]


def test_missing_and_truncated_images_are_named(coco: Path) -> None:
    (coco / "train/1.png").unlink()
    Image.effect_noise((64, 64), 50).save(coco / "train/2.png")
    whole = (coco / "train/2.png").read_bytes()
    (coco / "train/2.png").write_bytes(whole[: len(whole) // 2])
    found = problems(check(Coco(coco), progress=False))
    assert found["missing image files"] == [str(coco / "train/1.png")]
    [name] = found["unreadable images"]
    assert name.startswith(f"{coco / 'train/2.png'}: damaged or cut short")


def test_empty_captions_and_images_without_captions_are_named(coco: Path) -> None:
    write(coco, "val", [3, 4, 5], [(3, "a bird"), (3, " "), (4, "")])
    three, four, five = (str(coco / f"val/{number}.png") for number in (3, 4, 5))
    result = check(Coco(coco), progress=False)
    assert problems(result) == {
        "empty captions": [three, four],
        "images without captions": [four, five],
    }
    assert len(result.splits["val"].records) == 1


def test_a_copy_of_a_photo_in_another_split_is_named(coco: Path) -> None:
    photo(coco / "val/3.png", shade=1)
    expected = f"{coco / 'val/3.png'} is {coco / 'train/1.png'} of train"
    found = problems(check(Coco(coco), progress=False))
    assert found == {"images that are in another split too": [expected]}


def test_a_split_that_cannot_be_read_does_not_hide_the_others(coco: Path) -> None:
    (coco / "annotations/captions_val.json").write_text('{"images"')
    result = check(Coco(coco), progress=False)
    assert len(result.splits["train"].records) == 2
    [message] = problems(result)["cannot be read"]
    assert "captions_val.json" in message
