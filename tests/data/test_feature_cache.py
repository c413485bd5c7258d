"""Features of frozen stages on disk, and what a training sees of them."""

import json
import os
from pathlib import Path

import pytest
import torch
from PIL.Image import Transpose
from safetensors import safe_open
from safetensors.torch import save_file

from captioning.data.data_module import CaptionData
from captioning.data.dataset import CaptionDataset
from captioning.data.feature_cache import FeatureCache, feature_cache, fingerprint
from captioning.data.images import read_image
from captioning.data.preprocessing import MirroredPreprocessing, Preprocessing
from captioning.data.readers import CaptionTable, Coco
from captioning.data.records import Record
from captioning.data.vocabulary import Vocabulary
from captioning.errors import InputError
from captioning.models import CNNEncoder
from tests.data.conftest import cached, draw, encoder, trained_on, write

SEEDS = range(40)


def counting_encoder() -> tuple[CNNEncoder, list[int]]:
    """The encoder, and the numbers of images that it is given."""
    model, seen = encoder(), []
    model.register_forward_pre_hook(lambda _, given: seen.append(len(given[0])))
    return model, seen


def test_features_are_the_encoders_vectors_up_to_half_precision(
    photos: list[Path], folder: Path
) -> None:
    cache, model = cached(folder, photos), encoder().eval()
    for photo in photos:
        vectors = model(Preprocessing(32)(read_image(photo)).pixels[None])[0]
        torch.testing.assert_close(cache[photo].float(), vectors, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("part", ["metadata", "fingerprint", "images", "a row", "features"])
def test_a_file_of_features_that_lacks_a_part_is_named(
    part: str, photos: list[Path], folder: Path
) -> None:
    cached(folder, photos)
    path = next(folder.glob("*.safetensors"))
    with safe_open(path, "pt") as file:
        index, features = json.loads(file.metadata()["index"]), file.get_tensor("features")
    index.pop(part, None)
    rows = features[1:] if part == "a row" else features
    name = "others" if part == "features" else "features"
    metadata = None if part == "metadata" else {"index": json.dumps(index)}
    save_file({name: rows.contiguous()}, path, metadata)
    with pytest.raises(InputError, match=rf"{path.name}: damaged; remove it"):
        cached(folder, photos)


def test_an_error_loses_no_finished_batch(
    photos: list[Path], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("captioning.data.feature_cache.BATCH", 2)
    whole = cached(folder.with_name("whole"), photos)
    content = photos[3].read_bytes()
    photos[3].write_bytes(content[:300])
    with pytest.raises(InputError, match=photos[3].name):
        cached(folder, photos)
    photos[3].write_bytes(content)
    model, seen = counting_encoder()
    cache = cached(folder, photos, model)
    assert sum(seen) == len(photos) - 2
    assert all(cache[photo].equal(whole[photo]) for photo in photos)


def test_only_added_and_replaced_photos_are_encoded_later(photos: list[Path], folder: Path) -> None:
    bitmaps = [photo.with_suffix(".bmp") for photo in photos]  # files of equal size
    for photo, bitmap in zip(photos, bitmaps, strict=True):
        read_image(photo).save(bitmap)
    cached(folder, bitmaps[:4])
    bitmaps[1].write_bytes(b"no photo")
    with pytest.raises(InputError, match=bitmaps[1].name):
        cached(folder, bitmaps)
    read_image(photos[1]).transpose(Transpose.FLIP_LEFT_RIGHT).save(bitmaps[1])
    bitmaps[2].unlink()
    for images, fault in ((bitmaps[:2], f"{bitmaps[1].name} and 0 more have"), (bitmaps, "has no")):
        with pytest.raises(InputError, match=f"features: .*{fault}"):
            FeatureCache(folder, fingerprint(encoder(), Preprocessing(32))).check(images)
    model, seen = counting_encoder()
    cache = cached(folder, bitmaps[::-1], model)
    assert sum(seen) == 3
    read_image(photos[2]).save(bitmaps[2])
    fresh = cached(folder.with_name("fresh"), bitmaps)
    for bitmap in bitmaps:
        torch.testing.assert_close(cache[bitmap], fresh[bitmap], rtol=1e-2, atol=1e-2)
    cached(folder, bitmaps, model)
    assert sum(seen) == 3


def test_only_whole_features_of_this_encoder_are_taken(photos: list[Path], folder: Path) -> None:
    write(folder / "index.json", [])
    with pytest.raises(InputError, match=r"features: holds something .* an earlier version"):
        cached(folder, photos)
    (folder / "index.json").unlink()
    cached(folder, photos)
    with pytest.raises(InputError, match="features: made by another encoder"):
        cached(folder, photos, encoder(seed=1))
    for size in (1000, 0):
        os.truncate(folder / "features-000000.safetensors", size)
        with pytest.raises(InputError, match=r"features-000000\.safetensors: damaged; remove it"):
            cached(folder, photos)


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
    model, seen = counting_encoder()
    assert cached(tmp_path / "there/features", moved, model)[moved[2]].equal(cache[photos[2]])
    assert not seen


@pytest.mark.parametrize(("crop", "views"), [(3, 8), (None, 2)], ids=["windows", "whole"])
def test_a_training_sees_windows_of_photos_and_mirrored_ones(
    photos: list[Path], folder: Path, crop: int | None, views: int
) -> None:
    side, image = crop or 4, photos[0]
    caches = [
        feature_cache(folder / kind.__name__, encoder(), kind(32), images=[image])
        for kind in (Preprocessing, MirroredPreprocessing)
    ]
    data = CaptionDataset(
        [Record(image, 1, ("a dog",)), Record(image, 1, ("a dog to the left",))],
        Vocabulary(["dog"]),
        Preprocessing(32),
        features=caches[0],
        mirrored=caches[1],
        crop=crop,
    )
    places = range(5 - side)
    windows = {
        (is_mirrored, row, column): whole[row : row + side, column : column + side].flatten(0, 1)
        for is_mirrored in (False, True)
        for whole in [caches[is_mirrored][image].unflatten(0, (4, 4))]
        for row in places
        for column in places
    }

    def window(index: int, seed: int) -> tuple[bool, int, int]:
        """Which of the windows an example has."""
        features = data[index, seed].image
        [place] = [place for place, window in windows.items() if features.equal(window)]
        return place

    drawn = [window(0, seed) for seed in SEEDS]
    assert len(windows) == views
    assert set(drawn) == windows.keys()
    assert 10 <= sum(is_mirrored for is_mirrored, _, _ in drawn) <= 30
    assert not any(window(1, seed)[0] for seed in SEEDS)


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
    loader = trained_on(kind, data).train_dataloader()
    assert (loader.num_workers, loader.pin_memory) == (workers, kind == "cuda")


@pytest.mark.parametrize(
    ("caption", "folders"),
    [("a dog is on a beach", ["f", "f-mirrored"]), ("ein Hund rennt nach links", ["f"])],
)
def test_photos_with_captions_in_other_languages_get_no_mirrored_features(
    tmp_path: Path, caption: str, folders: list[str]
) -> None:
    draw(tmp_path / "data", "a.png", "b.png")
    rows = f"file_name,caption,split\na.png,{caption},train\nb.png,{caption},val"
    write(tmp_path / "data/captions.csv", rows)
    reader, features = CaptionTable(tmp_path / "data"), str(tmp_path / "features/f")
    CaptionData(reader, 32, features=features, mirror=True).keep_features(encoder())
    assert sorted(folder.name for folder in (tmp_path / "features").iterdir()) == folders
