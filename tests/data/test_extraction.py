from pathlib import Path

import pytest

from captioning.data import feature_cache as cache_module
from captioning.data.feature_cache import FeatureCache
from captioning.data.preprocessing import Preprocessing
from captioning.errors import InputError
from tests.data.conftest import cached


@pytest.fixture(autouse=True)
def two_rows_a_shard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "FEWEST_ROWS", 2)


def encoded(folder: Path, photos: list[Path], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the photos that are encoded until the features are whole."""
    seen: list[str] = []
    read = Preprocessing.__call__

    def reading(self: Preprocessing, photo: Path) -> object:
        seen.append(photo.name)
        return read(self, photo)

    with monkeypatch.context() as patch:
        patch.setattr(Preprocessing, "__call__", reading)
        cached(folder, photos)
    return seen


def interrupted(folder: Path, photos: list[Path]) -> None:
    """Leave unfinished features behind: the fourth photo cannot be read."""
    whole = photos[3].read_bytes()
    photos[3].write_bytes(whole[:300] + bytes(len(whole) - 300))
    with pytest.raises(InputError, match=photos[3].name):
        cached(folder, photos)
    photos[3].write_bytes(whole)


def test_an_error_loses_no_finished_shard(
    photos: list[Path], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted(folder, photos)
    assert encoded(folder, photos, monkeypatch) == [photo.name for photo in photos[2:]]
    cache, whole = FeatureCache(folder), cached(folder.with_name("whole"), photos)
    assert all(cache[photo].equal(whole[photo]) for photo in photos)
    assert encoded(folder, photos, monkeypatch) == []
