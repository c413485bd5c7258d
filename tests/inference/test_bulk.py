from pathlib import Path

import pytest
from PIL import Image

from captioning.captioner import Captioner
from captioning.errors import InputError
from captioning.inference import bulk
from captioning.inference.bulk import PhotoStream, caption_into_shards, missing_batches
from captioning.inference.shards import Shards
from captioning.search import BeamSearch

Place = tuple[int, int, bool]
SEARCH = BeamSearch(width=2, max_length=5)


@pytest.fixture
def photos(tmp_path: Path) -> PhotoStream:
    """A list of eleven photos, all the same."""
    Image.effect_noise((40, 30), 50).save(tmp_path / "photo.png")
    (tmp_path / "list.txt").write_text(f"{tmp_path / 'photo.png'}\n" * 11)
    return PhotoStream([], tmp_path / "list.txt")


@pytest.fixture
def shards(tmp_path: Path) -> Shards:
    """Shards of three photos."""
    (tmp_path / "captions").mkdir()
    return Shards(tmp_path / "captions", 3, {"list": "list.txt"})


def places(
    photos: PhotoStream, shards: Shards, process: int = 0, processes: int = 1
) -> list[tuple[Place, int]]:
    """The places of batches of two photos, and their numbers of photos."""
    batches = missing_batches(photos, shards, 2, process, processes)
    return [(place, len(paths)) for place, paths in batches]


def test_no_batch_crosses_the_border_of_a_shard(photos: PhotoStream, shards: Shards) -> None:
    assert places(photos, shards) == [
        ((0, 0, False), 2),
        ((0, 2, True), 1),
        ((1, 3, False), 2),
        ((1, 5, True), 1),
        ((2, 6, False), 2),
        ((2, 8, True), 1),
        ((3, 9, True), 2),
    ]


@pytest.mark.parametrize("processes", [2, 5])
def test_several_processes_have_the_batches_of_one(
    photos: PhotoStream, shards: Shards, processes: int
) -> None:
    shared = [place for p in range(processes) for place in places(photos, shards, p, processes)]
    assert sorted(shared) == places(photos, shards)


def test_only_missing_shards_are_captioned(
    captioner: Captioner, photos: PhotoStream, shards: Shards
) -> None:
    found = caption_into_shards(captioner, SEARCH, photos, shards, 2)
    assert found == (11, 0, [0])
    shards.path(2).unlink()
    assert [place[0] for place, _ in places(photos, shards)] == [2, 2]


def test_photos_that_come_meanwhile_are_noticed(
    captioner: Captioner, photos: PhotoStream, shards: Shards, monkeypatch: pytest.MonkeyPatch
) -> None:
    def later(*arguments: object) -> list[object]:
        found = compute(*arguments)  # type: ignore[arg-type]
        assert photos.listed is not None
        with photos.listed.open("a") as file:
            file.write("late.jpg\n" * 2)
        return found  # type: ignore[return-value]

    compute = bulk.results
    monkeypatch.setattr(bulk, "results", later)
    with pytest.raises(InputError, match=r"line 3 is not of late\.jpg; the photos have changed"):
        caption_into_shards(captioner, SEARCH, photos, shards, 2)
