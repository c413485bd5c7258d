"""Features of frozen stages on disk, and what a training sees of them."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import yaml
from PIL.Image import Transpose

from captioning.commands import main
from captioning.data import feature_cache as cache_module
from captioning.data.data_module import CaptionData
from captioning.data.dataset import CaptionDataset
from captioning.data.feature_cache import INDEX, FeatureCache
from captioning.data.images import read_image
from captioning.data.preprocessing import Preprocessing
from captioning.data.readers import Coco
from captioning.data.records import Record
from captioning.data.vocabulary import Vocabulary
from captioning.errors import InputError
from tests.data.conftest import Caches, cached, encoder

SEEDS = range(40)


def test_features_are_the_encoders_vectors_up_to_half_precision(
    photos: list[Path], folder: Path
) -> None:
    cache, model = cached(folder, photos), encoder().eval()
    for photo in photos:
        vectors = model(Preprocessing(32)(read_image(photo)).pixels[None])[0]
        torch.testing.assert_close(cache[photo].float(), vectors, rtol=1e-3, atol=1e-4)


def test_an_error_loses_no_finished_shard(
    photos: list[Path], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_module, "FEWEST_ROWS", 2)
    whole = cached(folder.with_name("whole"), photos)
    content = photos[3].read_bytes()
    photos[3].write_bytes(content[:300])
    with pytest.raises(InputError, match=photos[3].name):
        cached(folder, photos)
    photos[3].write_bytes(content)
    model, images = encoder(), []
    model.register_forward_pre_hook(lambda _, given: images.append(len(given[0])))
    cache = cached(folder, photos, model)
    assert sum(images) == len(photos) - 2
    assert all(cache[photo].equal(whole[photo]) for photo in photos)
    cached(folder, photos, model)
    assert sum(images) == len(photos) - 2


def test_features_can_be_used_without_the_photos(photos: list[Path], folder: Path) -> None:
    cached(folder, photos)
    photos[0].unlink()
    assert photos[0] in cached(folder, photos).images


def test_features_of_another_encoder_are_refused(photos: list[Path], folder: Path) -> None:
    cached(folder, photos)
    with pytest.raises(InputError, match="features: made by another encoder"):
        cached(folder, photos, encoder(seed=1))


def test_only_added_and_replaced_photos_are_encoded_later(
    photos: list[Path], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_module, "FEWEST_ROWS", 3)
    bitmaps = [photo.with_suffix(".bmp") for photo in photos]  # files of equal size
    for photo, bitmap in zip(photos, bitmaps, strict=True):
        read_image(photo).save(bitmap)
    cached(folder, bitmaps[:4])
    read_image(photos[1]).transpose(Transpose.FLIP_LEFT_RIGHT).save(bitmaps[1])
    bitmaps[2].unlink()
    for images, fault in ((bitmaps[:2], f"{bitmaps[1].name} and 0 more have"), (bitmaps, "has no")):
        with pytest.raises(InputError, match=f"features: .*{fault}"):
            FeatureCache(folder).check(encoder(), Preprocessing(32), images)
    model, seen = encoder(), []
    model.register_forward_pre_hook(lambda _, given: seen.append(len(given[0])))
    cache = cached(folder, bitmaps[::-1], model)
    assert sum(seen) == 3
    read_image(photos[2]).save(bitmaps[2])
    fresh = cached(folder.with_name("fresh"), bitmaps)
    for bitmap in bitmaps:
        torch.testing.assert_close(cache[bitmap], fresh[bitmap], rtol=1e-2, atol=1e-2)
    cached(folder, bitmaps, model)
    assert sum(seen) == 3


def test_a_replaced_photo_is_encoded_after_an_error(photos: list[Path], folder: Path) -> None:
    before = cached(folder, photos)[photos[1]]
    content = photos[0].read_bytes()
    photos[1].write_bytes(content[:300])
    with pytest.raises(InputError, match=photos[1].name):
        cached(folder, photos)
    photos[1].write_bytes(content)
    cache = cached(folder, photos)
    torch.testing.assert_close(cache[photos[1]], cache[photos[0]], rtol=1e-2, atol=1e-2)
    assert not cache[photos[1]].allclose(before, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("index", [[], {"fingerprint": "x", "rows": 64, "images": {"a.jpg": 3}}])
def test_features_of_an_earlier_version_are_refused(
    photos: list[Path], folder: Path, index: object
) -> None:
    folder.mkdir()
    (folder / INDEX).write_text(json.dumps(index))
    with pytest.raises(InputError, match="features: holds no features, or those of an earlier"):
        cached(folder, photos)


@pytest.mark.parametrize("size", [0, 1000])
def test_a_shard_that_is_cut_short_is_refused(photos: list[Path], folder: Path, size: int) -> None:
    cached(folder, photos)
    with (folder / "features-00000.npy").open("r+b") as file:
        file.truncate(size)
    with pytest.raises(InputError, match=r"features-00000\.npy: missing or damaged"):
        FeatureCache(folder)[photos[0]]


def test_features_hold_however_the_paths_are_given_or_moved(
    photos: list[Path], folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached(folder, photos)
    monkeypatch.chdir(photos[0].parent)
    relative = [Path("..", photo.parent.name, photo.name) for photo in photos]
    cache = cached(Path("../features"), relative)
    assert cache[relative[1]].equal(cache[photos[1]])
    (tmp_path / "there").mkdir()
    folder.rename(tmp_path / "there/features")
    photos[0].parent.rename(tmp_path / "there/photos")
    moved = [tmp_path / "there/photos" / photo.name for photo in photos]
    assert moved[2] in cached(tmp_path / "there/features", moved).images


@pytest.mark.parametrize(("crop", "views"), [(3, 8), (None, 2)], ids=["windows", "whole"])
def test_a_training_sees_windows_and_where_they_are(
    caches: Caches, shapes_records: list[Record], crop: int | None, views: int
) -> None:
    side = crop or 4
    image = shapes_records[0].image
    data = CaptionDataset(
        [Record(image, 1, ("a dog",)), Record(image, 1, ("a dog to the left",))],
        Vocabulary(["dog"]),
        Preprocessing(32),
        features=caches[0],
        mirrored=caches[1],
        tells_seen=True,
        crop=crop,
    )
    left, top, width, height = Preprocessing(32)(image).crop
    places = set()
    for seed in SEEDS:
        features, _, _, seen = data[0, seed]
        assert seen is not None
        assert seen.crop[2:] == (width * side / 4, height * side / 4)
        column, row = ((seen.crop[0] - left) / width * 4, (seen.crop[1] - top) / height * 4)
        column = 4 - side - column if seen.is_mirrored else column
        row, column = round(row), round(column)
        whole = caches[seen.is_mirrored][image].unflatten(0, (4, 4))
        assert features.equal(whole[row : row + side, column : column + side].flatten(0, 1))
        places.add((row, column, seen.is_mirrored))
    assert len(places) == views
    mirrored = [sum(data[index, seed].seen.is_mirrored for seed in SEEDS) for index in (0, 1)]
    assert 10 <= mirrored[0] <= 30
    assert mirrored[1] == 0


def test_a_window_is_no_larger_than_the_map(shapes_data: Path, tmp_path: Path) -> None:
    data = CaptionData(Coco(shapes_data), 32, min_count=1, features=str(tmp_path / "f"), crop=5)
    with pytest.raises(InputError, match=r"data\.crop: .* 4 rows of 4 cells; give at most 4"):
        data.keep_features(encoder())


@pytest.mark.parametrize(("kind", "workers"), [("cpu", 0), ("cuda", 1)])
def test_only_for_a_gpu_features_are_read_ahead_and_pinned(
    shapes_data: Path, tmp_path: Path, kind: str, workers: int
) -> None:
    data = CaptionData(Coco(shapes_data), 32, min_count=1, features=str(tmp_path), workers=1)
    data.keep_features(encoder())
    device = SimpleNamespace(root_device=torch.device(kind))
    trainer: Any = SimpleNamespace(strategy=device, world_size=1, global_rank=0)
    data.trainer = trainer
    loader = data.train_dataloader()
    assert (loader.num_workers, loader.pin_memory) == (workers, kind == "cuda")


def test_the_features_command_computes_both(tiny_config: Path, tmp_path: Path) -> None:
    config = yaml.safe_load(tiny_config.read_text())
    config["model"]["encoder"]["init_args"]["trainable_stages"] = 0
    config["data"] |= {"features": str(tmp_path / "features"), "mirror": True}
    path = tmp_path / "mirrored.yaml"
    path.write_text(yaml.safe_dump(config))
    assert main(["features", "--config", str(path)]) == 0
    plain, mirrored = (FeatureCache(tmp_path / name) for name in ("features", "features-mirrored"))
    assert plain.fingerprint != mirrored.fingerprint
    folder = ["--trainer.default_root_dir", str(tmp_path / "run")]
    assert main(["train", "--config", str(path), *folder]) == 0
