import json
import shutil
from pathlib import Path

import pytest
from PIL import Image

from captioning import files
from captioning.captioner import Captioner
from captioning.errors import InputError
from captioning.files import only_writer
from captioning.inference import bulk
from captioning.inference.bulk import PhotoStream, caption_into_shards
from captioning.inference.shards import Shards
from captioning.search import BeamSearch, Sampling

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


@pytest.mark.parametrize("batch_size", [2, 16])
def test_the_captions_do_not_depend_on_the_batches(
    captioner: Captioner, photos: PhotoStream, shards: Shards, batch_size: int
) -> None:
    caption_into_shards(captioner, SEARCH, photos, shards, batch_size)
    lines = [shards.path(number).read_text().splitlines() for number in range(4)]
    assert [len(each) for each in lines] == [3, 3, 3, 2]
    [photo] = {json.loads(line)["image"] for each in lines for line in each}
    [caption] = captioner([photo], SEARCH)
    assert {json.loads(line)["caption"] for each in lines for line in each} == {caption.text}


def test_sampled_captions_depend_on_the_photo_alone_also_where_an_earlier_call_ended(
    captioner: Captioner, photos: PhotoStream, shards: Shards
) -> None:
    assert photos.listed is not None
    for number in range(11):
        path = photos.listed.with_name(f"{number}.png")
        Image.effect_noise((40, 30), 50 + number).save(path)
    photos.listed.write_text("".join(f"{shards.folder.parent}/{n}.png\n" for n in range(11)))
    search = Sampling(temperature=100.0, max_length=5)

    def lines(batch_size: int) -> list[str]:
        caption_into_shards(captioner, search, photos, shards, batch_size, seed=3)
        texts = [shards.path(number).read_text() for number in range(4)]
        return [json.loads(line)["caption"] for text in texts for line in text.splitlines()]

    whole = lines(2)
    assert len(set(whole)) > 3
    for number in (1, 3):
        shards.path(number).unlink()
    assert lines(16) == whole


def test_only_missing_shards_are_captioned(
    captioner: Captioner, photos: PhotoStream, shards: Shards
) -> None:
    found = caption_into_shards(captioner, SEARCH, photos, shards, 2)
    assert found is not None
    assert (found.photos, found.unreadable, found.missing) == (11, 0, [0])
    shards.path(2).unlink()
    before = shards.path(1).stat().st_mtime_ns
    assert bulk.survey(photos, shards, 2).missing == [3, 0]
    assert caption_into_shards(captioner, SEARCH, photos, shards, 2) == found
    assert shards.path(2).exists()
    assert shards.path(1).stat().st_mtime_ns == before


def test_a_folder_that_is_removed_meanwhile_is_not_called_finished(
    captioner: Captioner, photos: PhotoStream, shards: Shards, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(self: Shards, number: int, lines: list[str]) -> None:
        if number == 2:
            shutil.rmtree(self.folder)
        whole(self, number, lines)

    whole = Shards.write
    with monkeypatch.context() as patch:
        patch.setattr(Shards, "write", write)
        with pytest.raises(InputError, match=r"6 of 11 captions are not there"):
            caption_into_shards(captioner, SEARCH, photos, shards, 2)
    found = caption_into_shards(captioner, SEARCH, photos, shards, 2)
    assert (found.photos, found.unreadable, found.missing) == (11, 0, [0])
    assert shards.numbers() == [0, 1, 2, 3]


def test_another_process_that_writes_the_same_captions_is_noticed(
    captioner: Captioner, photos: PhotoStream, shards: Shards, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "PATIENCE", 0.1)
    with only_writer(shards.folder), pytest.raises(InputError, match="another process is writing"):
        caption_into_shards(captioner, SEARCH, photos, shards, 2)
    assert not shards.numbers()


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
    with pytest.raises(InputError, match="2 of 13 captions are not there: photos came"):
        caption_into_shards(captioner, SEARCH, photos, shards, 2)


def test_a_folder_that_has_grown_goes_on_with_the_new_photos_wherever_they_are(
    captioner: Captioner, tmp_path: Path, shards: Shards, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    for name in ("b", "d", "f", "h"):
        Image.effect_noise((40, 30), 50).save(folder / f"{name}.png")
    caption_into_shards(captioner, SEARCH, PhotoStream([folder]), shards)
    before = [shards.path(number).read_bytes() for number in (0, 1)]
    for name in ("a", "e", "g"):
        Image.effect_noise((40, 30), 50).save(folder / f"{name}.png")
    (folder / "c.png").write_text("no photo")
    (folder / "h.png").unlink()
    found = caption_into_shards(captioner, SEARCH, PhotoStream([folder]), shards)
    assert [shards.path(number).read_bytes() for number in (0, 1)] == before
    new = [[Path(photo).stem for photo, _ in shards.lines(number)] for number in (2, 3)]
    assert new == [["a", "c", "e"], ["g"]]
    assert found is not None
    assert (found.photos, found.unreadable, found.gone) == (7, 1, 1)
    assert "lines of photos that have gone: 1" in capsys.readouterr().err


def test_the_missing_photos_are_shared_among_processes_as_they_are_counted(
    captioner: Captioner, photos: PhotoStream, shards: Shards
) -> None:
    caption_into_shards(captioner, SEARCH, photos, shards)
    for number in (0, 2, 3):
        shards.path(number).unlink()
    assert bulk.survey(photos, shards, 2).missing == [5, 3]
    parts = list(bulk._missing(photos, shards, [1]))
    assert [(number, len(part)) for number, part in parts] == [(0, 3), (2, 3), (3, 2)]
