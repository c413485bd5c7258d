import shutil
from pathlib import Path

import pytest

from captioning.data.folder_check import Check, check
from captioning.data.readers import Coco, Sidecar
from tests.conftest import draw_photos
from tests.data.conftest import coco_captions, write

UNREADABLE = Path("/proc/self/mem")
"""A regular file that can be opened, but at whose beginning nothing can be read."""


@pytest.fixture
def coco(tmp_path: Path) -> Path:
    draw_photos(tmp_path, "train/1.jpg", "train/2.jpg", *(f"val/{n}.jpg" for n in (3, 4, 5)))
    train = (1, "a cat"), (1, "one cat"), (2, "a dog"), (1, "cat")
    write(tmp_path / "annotations/captions_train.json", coco_captions(*train))
    write(tmp_path / "annotations/captions_val.json", coco_captions((3, "a bird")))
    return tmp_path


def problems(result: Check) -> dict[str, list[str]]:
    """The names of the problems by kind."""
    found: dict[str, list[str]] = {}
    for problem in result.problems:
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
    (coco / "train/1.jpg").unlink()
    whole = (coco / "train/2.jpg").read_bytes()
    (coco / "train/2.jpg").write_bytes(whole[: len(whole) // 2])
    found = problems(check(Coco(coco), progress=False))
    assert found["missing image files"] == [str(coco / "train/1.jpg")]
    [name] = found["unreadable images"]
    assert name.startswith(f"{coco / 'train/2.jpg'}: damaged or cut short")


@pytest.mark.skipif(not UNREADABLE.exists(), reason="no such file on this system")
def test_an_error_of_the_disk_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    draw_photos(tmp_path, "3.jpg")
    names = ["1.jpg", "2.jpg"]  # of equal size, so that their bytes are compared
    for name in names:
        (tmp_path / name).symlink_to(UNREADABLE)
    for number in (1, 2, 3):
        write(tmp_path / f"{number}.txt", "a cat")
    found = problems(check(Sidecar(tmp_path), progress=False))
    expected = [f"{tmp_path / name}: input/output error" for name in names]
    assert {kind: sorted(faults) for kind, faults in found.items()} == {
        "unreadable images": expected
    }


def test_wordless_captions_and_images_without_captions_are_named(coco: Path) -> None:
    words = ((3, "a bird"), (3, "42"), (3, "鳥"))
    some = coco_captions(*words, (3, " "), (3, "🔥"), (4, ""), (4, "..."), images=(3, 4, 5))
    write(coco / "annotations/captions_val.json", some)
    three, four, five = (str(coco / f"val/{number}.jpg") for number in (3, 4, 5))
    result = check(Coco(coco), progress=False)
    assert problems(result) == {
        "captions without words": [three, three, four, four],
        "images without captions": [four, five],
    }
    [record] = result.data_set.records("val")
    assert record.captions == tuple(caption for _, caption in words)


def test_a_copy_of_a_photo_in_another_split_is_named(coco: Path) -> None:
    shutil.copy(coco / "train/1.jpg", coco / "val/3.jpg")
    expected = f"{coco / 'val/3.jpg'} is {coco / 'train/1.jpg'} of train"
    found = problems(check(Coco(coco), progress=False))
    assert found == {"images that are in another split too": [expected]}


def test_a_split_that_cannot_be_read_does_not_hide_the_others(coco: Path) -> None:
    write(coco / "annotations/captions_val.json", '{"images"')
    result = check(Coco(coco), progress=False)
    assert len(result.data_set.records("train")) == 2
    [message] = problems(result)["cannot be read"]
    assert "captions_val.json" in message
