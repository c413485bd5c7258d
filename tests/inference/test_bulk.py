from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from captioning.captioner import Captioner
from captioning.errors import InputError
from captioning.inference.bulk import BulkCaptioning, Place
from captioning.inference.manifest import Manifest
from captioning.inference.photo_stream import PhotoStream
from captioning.inference.run_work import results
from captioning.inference.shards import Shards
from captioning.inference.work import Processes
from captioning.search import BeamSearch

Work = Callable[[], BulkCaptioning]


@pytest.fixture
def listed(tmp_path: Path) -> Path:
    """A list of eleven photos, all the same."""
    Image.effect_noise((40, 30), 50).save(tmp_path / "photo.png")
    (tmp_path / "list.txt").write_text(f"{tmp_path / 'photo.png'}\n" * 11)
    return tmp_path / "list.txt"


@pytest.fixture
def bulk(captioner: Captioner, listed: Path, tmp_path: Path) -> Work:
    """Shards of three photos in batches of two, each time as a new process would begin them."""
    folder = tmp_path / "captions"
    folder.mkdir()

    def begun() -> BulkCaptioning:
        photos = PhotoStream([], listed)
        manifest = Manifest(folder, {"list": str(listed)})
        search = BeamSearch(width=2, max_length=5)
        return BulkCaptioning(captioner, search, photos, Shards(folder, 3), manifest, 2)

    return begun


def places(work: BulkCaptioning, process: int, processes: int) -> list[tuple[Place, int]]:
    return [(place, len(paths)) for place, paths, _ in work.batches(process, processes)]


def test_no_batch_crosses_the_border_of_a_shard(bulk: Work) -> None:
    assert places(bulk(), 0, 1) == [
        (Place(0, 0, False), 2),
        (Place(0, 2, True), 1),
        (Place(1, 3, False), 2),
        (Place(1, 5, True), 1),
        (Place(2, 6, False), 2),
        (Place(2, 8, True), 1),
        (Place(3, 9, True), 2),
    ]


@pytest.mark.parametrize("processes", [2, 3, 5])
def test_several_processes_have_the_batches_of_one(bulk: Work, processes: int) -> None:
    shared = [place for p in range(processes) for place in places(bulk(), p, processes)]
    assert sorted(shared) == places(bulk(), 0, 1)


def test_finished_shards_are_not_read_again(bulk: Work) -> None:
    work = bulk()
    results(work, Processes())
    work.shards.path(2).unlink()
    assert [place.shard for place, _ in places(bulk(), 0, 1)] == [2, 2]


def test_photos_that_come_while_others_are_captioned_are_noticed(bulk: Work, listed: Path) -> None:
    work = bulk()
    work.prepare(1)
    with listed.open("a") as file:
        file.write("late.jpg\n")
    for batch in work.batches(0, 1):
        work.step(batch)
    with pytest.raises(InputError, match="photos came or went"):
        work.finish([work.result()])


def test_processes_that_saw_other_photos_are_noticed(bulk: Work, listed: Path) -> None:
    work = bulk()
    [tally] = results(work, Processes()) or []
    assert work.finish([tally, tally]).photos == 11
    with pytest.raises(InputError, match="photos came or went"):
        work.finish([tally, tally._replace(digest="another")])
