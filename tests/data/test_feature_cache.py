import json
from pathlib import Path

import pytest
import torch
from PIL.Image import Transpose

from captioning.data.feature_cache import INDEX, FeatureCache
from captioning.data.images import read_image
from captioning.data.preprocessing import Preprocessing
from captioning.errors import InputError
from tests.data.conftest import cached, encoder


def test_features_are_the_encoders_vectors_up_to_half_precision(
    photos: list[Path], folder: Path
) -> None:
    cache, model = cached(folder, photos), encoder().eval()
    for photo in photos:
        vectors = model(Preprocessing(32)(read_image(photo)).pixels[None])[0]
        torch.testing.assert_close(cache[photo].float(), vectors, rtol=1e-3, atol=1e-4)


def test_features_are_computed_only_once(photos: list[Path], folder: Path) -> None:
    first = cached(folder, photos)[photos[1]]
    model, seen = encoder(), []
    model.register_forward_hook(lambda *call: seen.append(call))
    assert cached(folder, photos, model)[photos[1]].equal(first)
    assert not seen


def test_features_can_be_used_without_the_photos(photos: list[Path], folder: Path) -> None:
    cached(folder, photos)
    photos[0].unlink()
    assert photos[0] in cached(folder, photos)


def test_features_of_another_encoder_are_refused(photos: list[Path], folder: Path) -> None:
    cached(folder, photos)
    with pytest.raises(InputError, match="features: made by another encoder"):
        cached(folder, photos, encoder(seed=1))


def test_another_photo_of_equal_size_is_refused(photos: list[Path], folder: Path) -> None:
    bitmaps = [photo.with_suffix(".bmp") for photo in photos]
    for photo, bitmap in zip(photos, bitmaps, strict=True):
        read_image(photo).save(bitmap)
    cached(folder, bitmaps)
    read_image(photos[1]).transpose(Transpose.FLIP_LEFT_RIGHT).save(bitmaps[1])
    with pytest.raises(InputError, match=f"features: .*{bitmaps[1].name} and 0 more have changed"):
        cached(folder, bitmaps)


@pytest.mark.parametrize(
    "index", [[], {}, {"fingerprint": "x", "rows": 64, "images": {"a.jpg": 3}}]
)
def test_features_of_an_earlier_version_are_refused(
    photos: list[Path], folder: Path, index: object
) -> None:
    folder.mkdir()
    (folder / INDEX).write_text(json.dumps(index))
    with pytest.raises(InputError, match="features: holds no features, or those of an earlier"):
        cached(folder, photos)


@pytest.mark.parametrize("size", [0, 100, 1000])
def test_a_shard_that_is_cut_short_is_refused(photos: list[Path], folder: Path, size: int) -> None:
    cached(folder, photos)
    with (folder / "features-00000.npy").open("r+b") as file:
        file.truncate(size)
    with pytest.raises(InputError, match=r"features-00000\.npy: missing or damaged"):
        FeatureCache(folder)[photos[0]]


def test_features_hold_however_the_paths_are_given(
    photos: list[Path], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached(folder, photos)
    monkeypatch.chdir(photos[0].parent)
    relative = [Path("..", photo.parent.name, photo.name) for photo in photos]
    cache = cached(Path("../features"), relative)
    assert photos[1] in cache
    assert cache[relative[1]].equal(cache[photos[1]])


def test_features_hold_where_they_are_moved_with_their_photos(
    photos: list[Path], folder: Path, tmp_path: Path
) -> None:
    cached(folder, photos)
    (tmp_path / "there").mkdir()
    folder.rename(tmp_path / "there/features")
    photos[0].parent.rename(tmp_path / "there/photos")
    moved = [tmp_path / "there/photos" / photo.name for photo in photos]
    assert moved[2] in cached(tmp_path / "there/features", moved)
