import json
from functools import partial
from pathlib import Path

import pytest

from captioning.captioner import Captioner
from captioning.data.images import find_photos
from captioning.errors import InputError, printable_json
from captioning.inference.bulk import Photos, Shards, caption_into_shards
from captioning.search import BeamSearch, Sampling
from tests.conftest import draw_photos

SEARCH = BeamSearch(width=2, max_length=5)


@pytest.fixture
def photos(tmp_path: Path) -> Photos:
    """A list of eleven photos, which differ."""
    draw_photos(tmp_path, *(f"{number}.png" for number in range(11)))
    (tmp_path / "list.txt").write_text("".join(f"{tmp_path}/{n}.png\n" for n in range(11)))
    return partial(find_photos, [], tmp_path / "list.txt")


@pytest.fixture
def shards(tmp_path: Path) -> Shards:
    """Shards of three photos."""
    (tmp_path / "captions").mkdir()
    return Shards(tmp_path / "captions", 3, {"list": "list.txt"})


def lines(shards: Shards) -> list[list[dict[str, str]]]:
    paths = [shards.path(number) for number in shards.numbers()]
    return [[json.loads(line) for line in path.read_text().splitlines()] for path in paths]


def captions(shards: Shards) -> list[str]:
    return [line["caption"] for shard in lines(shards) for line in shard]


@pytest.mark.parametrize("batch_size", [2, 16])
def test_the_captions_do_not_depend_on_the_batches(
    captioner: Captioner, photos: Photos, shards: Shards, batch_size: int
) -> None:
    assert caption_into_shards(captioner, SEARCH, photos, shards, batch_size) == 0
    assert [len(shard) for shard in lines(shards)] == [3, 3, 3, 2]
    assert captions(shards) == [caption.text for caption in captioner(photos(), SEARCH)]
    assert json.loads((shards.folder / "manifest.json").read_text())["finished"]["photos"] == 11


def test_only_missing_shards_are_captioned_with_the_same_draws(
    captioner: Captioner, photos: Photos, shards: Shards
) -> None:
    search = Sampling(temperature=100.0, max_length=5, seed=3)
    caption_into_shards(captioner, search, photos, shards, 2)
    whole, before = captions(shards), shards.path(0).stat().st_mtime_ns
    assert len(set(whole)) > 3
    for number in (1, 3):
        shards.path(number).unlink()
    caption_into_shards(captioner, search, photos, shards, 16)
    assert captions(shards) == whole
    assert shards.path(0).stat().st_mtime_ns == before


def test_new_photos_get_further_shards_wherever_they_are(
    captioner: Captioner, tmp_path: Path, shards: Shards, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "photos"
    draw_photos(folder, "b.png", "d.png", "f.png", "h.png")
    caption_into_shards(captioner, SEARCH, partial(find_photos, [folder]), shards)
    before = [shards.path(number).read_bytes() for number in (0, 1)]
    draw_photos(folder, "a.png", "e.png", "g.png")
    (folder / "c.png").write_text("no photo")
    (folder / "h.png").unlink()
    assert caption_into_shards(captioner, SEARCH, partial(find_photos, [folder]), shards) == 1
    assert [shards.path(number).read_bytes() for number in (0, 1)] == before
    new = [[Path(line["image"]).stem for line in shard] for shard in lines(shards)[2:]]
    assert new == [["a", "c", "e"], ["g"]]
    assert "lines of photos that have gone: 1" in capsys.readouterr().err
    finished = json.loads((shards.folder / "manifest.json").read_text())["finished"]
    assert finished == {"photos": 7, "unreadable": 1}


def test_a_shard_says_which_photos_have_a_caption(shards: Shards) -> None:
    name = "caf\udce9.jpg"  # not UTF-8
    entries = {"image": name, "caption": "a dog"}, {"image": "b.jpg", "error": "b.jpg: empty"}
    shards.write(0, [printable_json(entry) for entry in entries])
    assert lines(shards)[0][0]["image"] == name
    assert list(shards.lines(0)) == [(name, True), ("b.jpg", False)]


@pytest.mark.parametrize("line", ['{"image": "a.j', "[]", '{"image": 3}', '{"caption": "a dog"}'])
def test_a_damaged_shard_is_named(shards: Shards, line: str) -> None:
    shards.write(0, ['{"image": "a.jpg"}', line])
    with pytest.raises(InputError, match=r"ns-00000\.jsonl: line 2 is not of a photo; remove"):
        list(shards.lines(0))
